package podkind

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
)

// podForNodes returns the form in which a node sees Pods on other nodes, to enforce network policies for its own:
// their identity, labels, addresses and named ports, and whether they have ended. It has no environments, commands,
// volumes, images, annotations and container statuses.
func podForNodes() *kind.NodeForm[corev1.Pod] {
	return &kind.NodeForm[corev1.Pod]{
		Own: "spec.nodeName",
		Fields: []string{"metadata.name", "metadata.namespace", "spec.nodeName", "spec.host", "spec.hostNetwork", "status.phase",
			"status.podIP", "status.podIPs"},
		Show: func(p *corev1.Pod) *corev1.Pod {
			out := &corev1.Pod{TypeMeta: p.TypeMeta, ObjectMeta: kind.MetaForNodes(&p.ObjectMeta)}
			// The network of the node identifies a static Pod by the UID in this annotation.
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
				// A sidecar has ports too.
				if c := &p.Spec.InitContainers[i]; c.RestartPolicy != nil {
					if ports := namedPortsOf(c); ports != nil {
						out.Spec.InitContainers = append(out.Spec.InitContainers,
							corev1.Container{RestartPolicy: c.RestartPolicy, Ports: ports})
					}
				}
			}
			out.Status.Phase, out.Status.PodIP, out.Status.PodIPs = p.Status.Phase, p.Status.PodIP, p.Status.PodIPs
			return out
		},
	}
}

// namedPortsOf returns the ports of a container that network policies can refer to by name.
func namedPortsOf(c *corev1.Container) (out []corev1.ContainerPort) {
	for _, p := range c.Ports {
		if p.Name != "" {
			out = append(out, corev1.ContainerPort{Name: p.Name, ContainerPort: p.ContainerPort, Protocol: p.Protocol})
		}
	}
	return out
}
