package fact

import corev1 "k8s.io/api/core/v1"

// systemPriority is the lowest priority of system-critical Pods.
const systemPriority = 2_000_000_000

// sourceAnnotation names the source of a static Pod: "file" or "http". node/podsource sets it.
const sourceAnnotation = "kubernetes.io/config.source"

// Static reports whether a Pod comes from a file or a URL of this node and not from the API. Whoever may create Pods
// can give them the annotation of a static Pod; but a Pod from the API has a creation timestamp, which the API server
// alone sets, and node/podsource removes the creation timestamp of manifests.
func Static(p *corev1.Pod) bool {
	source, found := p.Annotations[sourceAnnotation]
	return found && source != "api" && p.CreationTimestamp.IsZero()
}

// Critical reports whether a Pod must not be evicted: it is static, or has a system-critical priority. The annotation
// of a mirror Pod is ignored, because a node runs no Pod that has it.
func Critical(p *corev1.Pod) bool {
	return Static(p) || p.Spec.Priority != nil && *p.Spec.Priority >= systemPriority
}
