package fact

import corev1 "k8s.io/api/core/v1"

// systemPriority is where the priorities of what the system needs begin.
const systemPriority = 2_000_000_000

// Static says that a Pod comes from a file or a URL of this node, not from the API.
func Static(p *corev1.Pod) bool {
	source, found := p.Annotations["kubernetes.io/config.source"]
	return found && source != "api"
}

// Critical says that a Pod must run, and is not to be evicted: static ones, their mirrors, and those with a priority of the
// system.
func Critical(p *corev1.Pod) bool {
	_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
	return Static(p) || mirror || p.Spec.Priority != nil && *p.Spec.Priority >= systemPriority
}
