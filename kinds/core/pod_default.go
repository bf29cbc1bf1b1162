package core

import (
	"iter"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// DefaultPodTemplate fills in what a pod template leaves out.
func DefaultPodTemplate(t *corev1.PodTemplateSpec) { DefaultPodSpec(&t.Spec) }

// DefaultPodSpec fills in what every pod spec leaves out, whether it belongs to a pod or to a template.
// What only pods get is in defaultPod.
func DefaultPodSpec(s *corev1.PodSpec) {
	if s.ServiceAccountName == "" {
		s.ServiceAccountName = s.DeprecatedServiceAccount
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
	orElse(&s.DNSPolicy, corev1.DNSClusterFirst)
	orElse(&s.RestartPolicy, corev1.RestartPolicyAlways)
	orElse(&s.SchedulerName, corev1.DefaultSchedulerName)
	orNew(&s.SecurityContext, corev1.PodSecurityContext{})
	orNew(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
	for _, c := range containersOf(s) {
		defaultContainer(c)
	}
	roundUp(s.Overhead)
	roundRequirements(s.Resources)
}

// defaultPod fills in what a pod leaves out.
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
	orNew(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if s.HostNetwork {
		defaultHostPorts(s)
	}
	DefaultPodSpec(s)
	defaultPodStatus(&p.Status)
}

// requestLimits makes every limit a request too, unless the container asks for something else.
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

// defaultPodStatus keeps podIP and podIPs[0] the same.
func defaultPodStatus(s *corev1.PodStatus) {
	switch {
	case s.PodIP != "" && (len(s.PodIPs) == 0 || s.PodIPs[0].IP != s.PodIP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	case s.PodIP == "" && len(s.PodIPs) > 0:
		s.PodIP = s.PodIPs[0].IP
	}
	for _, c := range statusesOf(s) {
		roundUp(c.AllocatedResources)
		roundRequirements(c.Resources)
	}
	roundUp(s.AllocatedResources)
	roundRequirements(s.Resources)
}

func defaultHostPorts(s *corev1.PodSpec) {
	for _, list := range [][]corev1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			for j := range list[i].Ports {
				orElse(&list[i].Ports[j].HostPort, list[i].Ports[j].ContainerPort)
			}
		}
	}
}

func defaultContainer(c *corev1.Container) {
	if c.ImagePullPolicy == "" { // every stored one has it, and the name of an image takes long to read
		c.ImagePullPolicy = pullPolicyOf(c.Image)
	}
	orElse(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	orElse(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		orElse(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		defaultFieldRef(e.ValueFrom.FieldRef)
		if f := e.ValueFrom.FileKeyRef; f != nil {
			orNew(&f.Optional, false)
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	orElse(&p.TimeoutSeconds, 1)
	orElse(&p.PeriodSeconds, 10)
	orElse(&p.SuccessThreshold, 1)
	orElse(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		orNew(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(a *corev1.HTTPGetAction) {
	if a != nil {
		orElse(&a.Path, "/")
		orElse(&a.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(r *corev1.ObjectFieldSelector) {
	if r != nil {
		orElse(&r.APIVersion, "v1")
	}
}

// roundUp keeps nothing finer than a thousandth of a unit.
func roundUp(list corev1.ResourceList) {
	for name, q := range maps.Clone(list) {
		if q.RoundUp(resource.Milli) {
			continue
		}
		list[name] = q
	}
}

func roundRequirements(r *corev1.ResourceRequirements) {
	if r != nil {
		roundUp(r.Limits)
		roundUp(r.Requests)
	}
}

// orElse sets what is empty.
func orElse[T comparable](p *T, value T) {
	var zero T
	if *p == zero {
		*p = value
	}
}

// orNew sets what is absent.
func orNew[T any](p **T, value T) {
	if *p == nil {
		*p = &value
	}
}

// containersOf yields every container of a pod with the name of the list it is in: first those that
// run to prepare the pod, then its own, then those added to debug it.
func containersOf(s *corev1.PodSpec) iter.Seq2[string, *corev1.Container] {
	return func(yield func(string, *corev1.Container) bool) {
		for i := range s.InitContainers {
			if !yield("initContainers", &s.InitContainers[i]) {
				return
			}
		}
		for i := range s.Containers {
			if !yield("containers", &s.Containers[i]) {
				return
			}
		}
		for i := range s.EphemeralContainers {
			if !yield("ephemeralContainers", (*corev1.Container)(&s.EphemeralContainers[i].EphemeralContainerCommon)) {
				return
			}
		}
	}
}

// statusesOf yields the status of every container with the name of the list it is in.
func statusesOf(s *corev1.PodStatus) iter.Seq2[string, *corev1.ContainerStatus] {
	return func(yield func(string, *corev1.ContainerStatus) bool) {
		lists := []struct {
			name string
			list []corev1.ContainerStatus
		}{
			{"initContainerStatuses", s.InitContainerStatuses},
			{"containerStatuses", s.ContainerStatuses},
			{"ephemeralContainerStatuses", s.EphemeralContainerStatuses},
		}
		for _, l := range lists {
			for i := range l.list {
				if !yield(l.name, &l.list[i]) {
					return
				}
			}
		}
	}
}

// containerPaths yields every container of a pod with its place below the spec's.
func containerPaths(s *corev1.PodSpec, spec *field.Path) iter.Seq2[*corev1.Container, *field.Path] {
	return func(yield func(*corev1.Container, *field.Path) bool) {
		list, i := "", 0
		for name, c := range containersOf(s) {
			if name != list {
				list, i = name, 0
			}
			if !yield(c, spec.Child(list).Index(i)) {
				return
			}
			i++
		}
	}
}
