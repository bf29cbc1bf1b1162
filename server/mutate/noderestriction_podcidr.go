package mutate

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// restrictPodCIDRs keeps a node from choosing the networks of its own Pods. Every other node installs routes to
// spec.podCIDRs, so whoever writes the field attracts traffic of the cluster to that node: only the allocator and
// administrators may. old is nil when the node registers itself. Writes of the status do not change the spec and need
// no check.
func restrictPodCIDRs(a *kind.Admission, n, old *corev1.Node) error {
	if a.Sub != "" {
		return nil
	}
	var had corev1.NodeSpec
	if old != nil {
		had = old.Spec
	}
	if n.Spec.PodCIDR != had.PodCIDR || !equal(n.Spec.PodCIDRs, had.PodCIDRs) {
		return a.Forbid(fmt.Errorf("node %q is not allowed to set spec.podCIDR and spec.podCIDRs of itself: leave them out on create and unchanged on update", n.Name))
	}
	return nil
}
