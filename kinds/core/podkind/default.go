package podkind

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/defaulting"
)

// defaultPod fills in what a pod leaves out, besides what podspec.Default does for templates too.
func defaultPod(p *corev1.Pod) {
	s := &p.Spec
	if g := s.TerminationGracePeriodSeconds; g != nil && *g < 0 {
		s.TerminationGracePeriodSeconds = new(int64(1))
	}
	for _, list := range [][]corev1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			requestLimits(&list[i].Resources)
		}
	}
	defaulting.IfNil(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if s.HostNetwork {
		defaultHostPorts(s)
	}
	podspec.Default(s)
	defaultPodStatus(&p.Status)
}

// requestLimits sets a request for every limit that has none.
func requestLimits(r *corev1.ResourceRequirements) {
	if r.Limits == nil {
		return
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	for name, limit := range r.Limits {
		if _, asked := r.Requests[name]; !asked {
			r.Requests[name] = limit.DeepCopy()
		}
	}
}

// defaultPodStatus keeps podIP equal to the first of podIPs.
func defaultPodStatus(s *corev1.PodStatus) {
	switch {
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	}
	for _, c := range podspec.ContainerStatuses(s) {
		defaulting.RoundUp(c.AllocatedResources)
		defaulting.RoundUpRequirements(c.Resources)
	}
	defaulting.RoundUp(s.AllocatedResources)
	defaulting.RoundUpRequirements(s.Resources)
}

func defaultHostPorts(s *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			for j := range list[i].Ports {
				defaulting.IfZero(&list[i].Ports[j].HostPort, list[i].Ports[j].ContainerPort)
			}
		}
	}
}
