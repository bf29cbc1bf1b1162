package containerspec

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core/downwardapi"
	"proa.dev/kinds/lib/defaulting"
	"proa.dev/kinds/lib/imagereference"
)

// Default sets the defaults of a container.
func Default(c *corev1.Container) {
	if c.ImagePullPolicy == "" { // stored containers have it, and parsing the name of an image is slow
		c.ImagePullPolicy = imagereference.PullPolicy(c.Image)
	}
	defaulting.IfZero(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	defaulting.IfZero(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		defaulting.IfZero(&c.Ports[i].Protocol, corev1.ProtocolTCP)
	}
	for _, e := range c.Env {
		if e.ValueFrom == nil {
			continue
		}
		downwardapi.DefaultFieldRef(e.ValueFrom.FieldRef)
		if f := e.ValueFrom.FileKeyRef; f != nil {
			defaulting.IfNil(&f.Optional, false)
		}
	}
	defaulting.RoundUp(c.Resources.Limits)
	defaulting.RoundUp(c.Resources.Requests)
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
	defaulting.IfZero(&p.TimeoutSeconds, 1)
	defaulting.IfZero(&p.PeriodSeconds, 10)
	defaulting.IfZero(&p.SuccessThreshold, 1)
	defaulting.IfZero(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		defaulting.IfNil(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(a *corev1.HTTPGetAction) {
	if a != nil {
		defaulting.IfZero(&a.Path, "/")
		defaulting.IfZero(&a.Scheme, corev1.URISchemeHTTP)
	}
}
