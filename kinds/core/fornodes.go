package core

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

// podForNodes is what a node reads of Pods on other nodes, in order to enforce network policies for its own: who they are, their
// labels, addresses and named ports, and whether they have ended. Environments, commands, volumes, images, annotations and
// statuses of containers are not for it.
func podForNodes() *kind.NodeForm[corev1.Pod] {
	return &kind.NodeForm[corev1.Pod]{
		Own:    "spec.nodeName",
		Fields: []string{"metadata.name", "metadata.namespace", "spec.nodeName", "spec.host", "spec.hostNetwork", "status.phase", "status.podIP", "status.podIPs"},
		Show: func(p *corev1.Pod) *corev1.Pod {
			out := &corev1.Pod{TypeMeta: p.TypeMeta, ObjectMeta: metaForNodes(&p.ObjectMeta)}
			// The network of a static Pod knows it by the UID that this annotation has.
			if of, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
				out.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: of}
			}
			out.Spec.NodeName, out.Spec.HostNetwork = p.Spec.NodeName, p.Spec.HostNetwork
			out.Spec.Containers = []corev1.Container{}
			for i := range p.Spec.Containers {
				if ports := namedPortsOf(&p.Spec.Containers[i]); ports != nil {
					out.Spec.Containers = append(out.Spec.Containers, corev1.Container{Ports: ports})
				}
			}
			for i := range p.Spec.InitContainers {
				// One that stays beside the others serves too.
				if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil {
					if ports := namedPortsOf(c); ports != nil {
						out.Spec.InitContainers = append(out.Spec.InitContainers, corev1.Container{RestartPolicy: c.RestartPolicy, Ports: ports})
					}
				}
			}
			out.Status.Phase, out.Status.PodIP, out.Status.PodIPs = p.Status.Phase, p.Status.PodIP, p.Status.PodIPs
			return out
		},
	}
}

// namedPortsOf are the ports of a container that network policies can name.
func namedPortsOf(c *corev1.Container) (out []corev1.ContainerPort) {
	for _, p := range c.Ports {
		if p.Name != "" {
			out = append(out, corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol})
		}
	}
	return out
}

// OnLinkAnnotation is where a node publishes the networks that it reaches without a router, with commas between them. Other nodes read it to
// decide whether their Pods and those of the node need a tunnel between them.
const OnLinkAnnotation = "proa.dev/on-link"

// UnreachableAnnotation is where a node publishes the names of the nodes whose Pods its own do not reach, with commas between them.
const UnreachableAnnotation = "proa.dev/unreachable-nodes"

// nodeForNodes is what a node reads of other Nodes, in order to reach them and their Pods: addresses, networks of Pods and on links, labels
// and taints.
func nodeForNodes() *kind.NodeForm[corev1.Node] {
	return &kind.NodeForm[corev1.Node]{
		Own:    "metadata.name",
		Fields: []string{"metadata.name", "spec.unschedulable"},
		Show: func(n *corev1.Node) *corev1.Node {
			meta := metaForNodes(&n.ObjectMeta)
			if links, published := n.Annotations[OnLinkAnnotation]; published {
				meta.Annotations = map[string]string{OnLinkAnnotation: links}
			}
			return &corev1.Node{
				TypeMeta: n.TypeMeta, ObjectMeta: meta,
				Spec:   corev1.NodeSpec{PodCIDR: n.Spec.PodCIDR, PodCIDRs: n.Spec.PodCIDRs, Unschedulable: n.Spec.Unschedulable, Taints: n.Spec.Taints},
				Status: corev1.NodeStatus{Addresses: n.Status.Addresses},
			}
		},
	}
}

// namespaceForNodes is what a node reads of namespaces, in order to answer names in them and to enforce the network policies that
// select them: names and labels.
func namespaceForNodes() *kind.NodeForm[corev1.Namespace] {
	return &kind.NodeForm[corev1.Namespace]{
		Fields: []string{"metadata.name", "status.phase"},
		Show: func(n *corev1.Namespace) *corev1.Namespace {
			return &corev1.Namespace{TypeMeta: n.TypeMeta, ObjectMeta: metaForNodes(&n.ObjectMeta), Status: corev1.NamespaceStatus{Phase: n.Status.Phase}}
		},
	}
}

// metaForNodes is which object it is, its labels, and when it began and ends.
func metaForNodes(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, Labels: m.Labels,
		CreationTimestamp: m.CreationTimestamp, DeletionTimestamp: m.DeletionTimestamp, DeletionGracePeriodSeconds: m.DeletionGracePeriodSeconds,
	}
}
