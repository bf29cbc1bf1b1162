package fact

import corev1 "k8s.io/api/core/v1"

// systemPriority is where the priorities of what the system needs begin.
const systemPriority = 2_000_000_000

// sourceAnnotation names the source of a static Pod: "file" or "http". node/source sets it.
const sourceAnnotation = "kubernetes.io/config.source"

// Static says that a Pod comes from a file or a URL of this node, not from the API. Anybody who may create Pods can give them the
// annotation of a static one; but what comes from the API has a creation timestamp, which the API server alone sets and never
// changes, and what comes from a manifest has none, because node/source takes it away.
func Static(p *corev1.Pod) bool {
	source, found := p.Annotations[sourceAnnotation]
	return found && source != "api" && p.CreationTimestamp.IsZero()
}

// Critical says that a Pod must run, and is not to be evicted: static ones, and those with a priority of the system. The annotation of
// a mirror Pod says nothing: a node runs no Pod that has it.
func Critical(p *corev1.Pod) bool {
	return Static(p) || p.Spec.Priority != nil && *p.Spec.Priority >= systemPriority
}
