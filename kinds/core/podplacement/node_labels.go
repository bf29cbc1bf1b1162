package podplacement

// DeprecatedNodeLabel returns the warning for a deprecated label of nodes.
func DeprecatedNodeLabel(label string) (text string, ok bool) {
	switch label {
	case "beta.kubernetes.io/arch", "beta.kubernetes.io/os":
		return `deprecated since v1.14; use "` + label[len("beta."):] + `" instead`, true
	case "failure-domain.beta.kubernetes.io/region":
		return `deprecated since v1.17; use "topology.kubernetes.io/region" instead`, true
	case "failure-domain.beta.kubernetes.io/zone":
		return `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`, true
	case "beta.kubernetes.io/instance-type":
		return `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`, true
	case "app.kubernetes.io/created-by":
		return "deprecated since v1.9", true
	case "scheduler.alpha.kubernetes.io/preferAvoidPods":
		return "deprecated since v1.22; use Taints and Tolerations instead", true
	case "node-role.kubernetes.io/master":
		return `use "node-role.kubernetes.io/control-plane" instead`, true
	}
	return "", false
}
