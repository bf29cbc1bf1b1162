package nodekind

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// nodeForNodes returns the form in which a node sees other Nodes, to reach them and their Pods: addresses, pod CIDRs,
// on-link networks, labels and taints.
func nodeForNodes() *kind.NodeForm[corev1.Node] {
	return &kind.NodeForm[corev1.Node]{
		Own:    "metadata.name",
		Fields: []string{"metadata.name", "spec.unschedulable"},
		Show: func(n *corev1.Node) *corev1.Node {
			meta := kind.MetaForNodes(&n.ObjectMeta)
			if links, published := n.Annotations[OnLinkAnnotation]; published {
				meta.Annotations = map[string]string{OnLinkAnnotation: links}
			}
			return &corev1.Node{
				TypeMeta: n.TypeMeta, ObjectMeta: meta,
				Spec: corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Unschedulable: n.Spec.Unschedulable,
					Taints: n.Spec.Taints},
				Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
			}
		},
	}
}

// OnLinkAnnotation holds the networks that a node reaches without a router, separated by commas. The node publishes
// it; other nodes read it to decide whether their Pods and those of the node need a tunnel between them.
const OnLinkAnnotation = "proa.dev/on-link"

// BuildAnnotation names the build of proa that runs the agent of a node, as the node says: its version of the API is the
// same for all builds. It is for people, and nothing is decided by it.
const BuildAnnotation = "proa.dev/build"

// UnreachableAnnotation holds the names of the nodes whose Pods are unreachable from the Pods of a node, separated by
// commas. The node publishes it.
const UnreachableAnnotation = "proa.dev/unreachable-nodes"
