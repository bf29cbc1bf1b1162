package traffic

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
	"proa.dev/why/metadata"
)

// Ingresses is the resource of Ingresses.
func Ingresses() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingresses"}
}

func ingressClasses() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}
}

// AddressStep is the link of the chain of an Ingress that does not hold while no controller has given it an address.
const AddressStep = "address"

// Ingress explains an Ingress: its class, its Services and what is behind them.
func (r *Explainer) Ingress(ctx context.Context, ref answer.Ref) (*answer.Answer, error) {
	in, err := lookup.Load[networkingv1.Ingress](ctx, r.Reader, Ingresses(), ref.Namespace, ref.Name)
	if err != nil {
		return nil, err
	}
	a := (&answer.Answer{Object: ref, State: answer.Stuck}).At(hop.Network)
	if in.DeletionTimestamp != nil {
		return metadata.Ending(a, &in.ObjectMeta, r.Now), nil
	}
	unread := false
	if name := in.Spec.IngressClassName; name != nil {
		class, missing := lookup.Get[networkingv1.IngressClass](ctx, r.Reader, ingressClasses(), "", *name)
		if class == nil && !missing {
			unread = true
		} else if !a.AddStep("class", !missing, "%s", *name) {
			a.Cause = "The IngressClass " + *name + " does not exist, so that no controller serves the Ingress."
			return a.Because(a.Object, "spec.ingressClassName", *name,
				time.Time{}).Do("kubectl get ingressclass shows those that there are"), nil
		}
	} else if in.Annotations["kubernetes.io/ingress.class"] == "" {
		a.AddStep("class", true, "none is named: the default class counts")
	}
	for _, b := range backends(in) {
		s, missing := lookup.Get[corev1.Service](ctx, r.Reader, gr.Services, b.namespace, b.name)
		if s == nil && !missing {
			unread = true
		} else if done := r.backend(ctx, b, s, a); done {
			return a, nil
		}
	}
	for _, tls := range in.Spec.TLS {
		if tls.SecretName == "" {
			continue
		}
		secret, missing := lookup.Get[corev1.Secret](ctx, r.Reader, gr.Secrets, in.Namespace, tls.SecretName)
		if secret == nil && !missing {
			unread = true
		} else if !a.AddStep("certificate", !missing, "Secret %s", tls.SecretName) {
			a.Cause = "The Secret " + tls.SecretName + " with the certificate of the Ingress does not exist."
			return a.Because(a.Object, "spec.tls.secretName", tls.SecretName,
				time.Time{}).Do("create a Secret of type kubernetes.io/tls with that name"), nil
		}
	}
	if len(in.Status.LoadBalancer.Ingress) == 0 {
		a.AddStep(AddressStep, false, "none")
		a.Cause = "No controller has taken the Ingress: its status has no address."
		return a.Because(a.Object, "status.loadBalancer.ingress", "empty", time.Time{}).
			Do("check that a controller for its class runs; proa serves Ingresses unless --ingress is off"), nil
	}
	a.State, a.Cause, a.Hop, a.HopName = answer.Working, "The Ingress is served, and every Service that it names has endpoints.", 0, ""
	if unread {
		a.State, a.Cause = answer.Unknown, "The Ingress has an address, but not everything that it names could be read."
	}
	return a, nil
}

// serviceBackend is a Service that an Ingress or a route leads to, with the number or the name of its port.
type serviceBackend struct {
	namespace, name string
	port            int32
	portName        string
	// from is what names the Service, and field the path of the field that does so.
	from, field string
}

// wantedPort returns the port as people write it.
func (b *serviceBackend) wantedPort() string {
	return cmp.Or(b.portName, fmt.Sprint(b.port))
}

// isServedBy tells whether a Service has the port. A backend may leave it out.
func (b *serviceBackend) isServedBy(s *corev1.Service) bool {
	return b.port == 0 && b.portName == "" || slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return b.portName != "" && p.Name == b.portName || b.portName == "" && p.Port == b.port
	})
}

// backends returns the backends of an Ingress that are Services, each once.
func backends(in *networkingv1.Ingress) (out []serviceBackend) {
	add := func(b *networkingv1.IngressServiceBackend) {
		if b == nil {
			return
		}
		to := serviceBackend{namespace: in.Namespace, name: b.Name, port: b.Port.Number, portName: b.Port.Name, from: "Ingress",
			field: "spec.rules.http.paths.backend.service"}
		if !slices.Contains(out, to) {
			out = append(out, to)
		}
	}
	if b := in.Spec.DefaultBackend; b != nil {
		add(b.Service)
	}
	for _, rule := range in.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for i := range rule.HTTP.Paths {
			add(rule.HTTP.Paths[i].Backend.Service)
		}
	}
	return out
}

// backend looks at a Service that an Ingress or a route names, nil when it does not exist, and returns whether it is what is wrong.
func (r *Explainer) backend(ctx context.Context, b serviceBackend, s *corev1.Service, a *answer.Answer) bool {
	step := "Service " + b.name
	if s == nil {
		a.AddStep(step, false, "does not exist")
		a.Cause = "The Service " + b.name + " that the " + b.from + " names does not exist in namespace " + b.namespace + "."
		a.Because(a.Object, b.field+".name", b.name, time.Time{}).Do("create the Service, or correct its name")
		return true
	}
	if !b.isServedBy(s) {
		a.AddStep(step, false, "has no port %s", b.wantedPort())
		a.Cause = "The Service " + b.name + " has no port " + b.wantedPort() + ", which the " + b.from + " names."
		a.Because(a.Object, b.field+".port", b.wantedPort(), time.Time{}).Do("use one of the ports %s", PortsOf(s))
		return true
	}
	behind := r.Service(ctx, s)
	if behind.State == answer.Working || s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 &&
		strings.Contains(behind.Cause, "load balancer") {
		a.AddStep(step, true, "%s", answer.Lower(behind.Cause))
		return false
	}
	a.AddStep(step, false, "%s", answer.Lower(behind.Cause))
	a.Cause = "The Service " + b.name + " behind the " + b.from + " has nothing to answer with: " + answer.Lower(behind.Cause)
	a.Through, a.Hop, a.HopName, a.State = behind, behind.Hop, behind.HopName, behind.State
	return true
}
