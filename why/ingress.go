package why

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
	"proa.dev/why/lookup"
)

// ingresses and ingressClasses are resources that only explanations read.
func ingresses() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingresses"}
}

func ingressClasses() schema.GroupResource {
	return schema.GroupResource{Group: networkingv1.GroupName, Resource: "ingressclasses"}
}

func httpRoutes() schema.GroupResource {
	return schema.GroupResource{Group: "gateway.networking.k8s.io", Resource: "httproutes"}
}

// ingress explains an Ingress: its class, its Services and what is behind them.
func (r *reader) ingress(ctx context.Context, t Target) (*Answer, error) {
	in, err := lookup.Load[networkingv1.Ingress](ctx, r.Reader, ingresses(), t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	a := (&Answer{Object: t.ref(), State: Stuck}).At(hop.Network)
	if in.DeletionTimestamp != nil {
		return r.ending(&in.ObjectMeta, a), nil
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
		s, missing := lookup.Get[corev1.Service](ctx, r.Reader, gr.Services, in.Namespace, b.Name)
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
		a.AddStep("address", false, "none")
		a.Cause = "No controller has taken the Ingress: its status has no address."
		return a.Because(a.Object, "status.loadBalancer.ingress", "empty", time.Time{}).
			Do("check that a controller for its class runs; proa serves Ingresses unless --ingress is off"), nil
	}
	a.State, a.Cause, a.Hop, a.HopName = Working, "The Ingress is served, and every Service that it names has endpoints.", 0, ""
	if unread {
		a.State, a.Cause = Unknown, "The Ingress has an address, but not everything that it names could be read."
	}
	return a, nil
}

// backends returns the backends of an Ingress that are Services, each once.
func backends(in *networkingv1.Ingress) (out []networkingv1.IngressServiceBackend) {
	seen := map[networkingv1.IngressServiceBackend]bool{}
	add := func(b *networkingv1.IngressServiceBackend) {
		if b != nil && !seen[*b] {
			seen[*b] = true
			out = append(out, *b)
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

// backend looks at a Service that an Ingress names, nil when it does not exist, and returns whether it is what is wrong.
func (r *reader) backend(ctx context.Context, b networkingv1.IngressServiceBackend, s *corev1.Service, a *Answer) bool {
	if s == nil {
		a.AddStep("Service "+b.Name, false, "does not exist")
		a.Cause = "The Service " + b.Name + " that the Ingress names does not exist in namespace " + a.Object.Namespace + "."
		a.Because(a.Object, "spec.rules.http.paths.backend.service.name", b.Name, time.Time{}).Do("create the Service, or correct its name")
		return true
	}
	found := false
	for _, p := range s.Spec.Ports {
		found = found || b.Port.Name != "" && p.Name == b.Port.Name || b.Port.Name == "" && p.Port == b.Port.Number
	}
	if !found {
		want := b.Port.Name
		if want == "" {
			want = fmt.Sprint(b.Port.Number)
		}
		a.AddStep("Service "+b.Name, false, "has no port %s", want)
		a.Cause = "The Service " + b.Name + " has no port " + want + ", which the Ingress names."
		a.Because(a.Object, "spec.rules.http.paths.backend.service.port", want, time.Time{}).Do("use one of the ports %s", portsOf(s))
		return true
	}
	behind := r.explainService(ctx, s)
	if behind.State == Working || s.Spec.Type == corev1.ServiceTypeLoadBalancer && len(s.Status.LoadBalancer.Ingress) == 0 &&
		strings.Contains(behind.Cause, "load balancer") {
		a.AddStep("Service "+b.Name, true, "%s", answer.Lower(behind.Cause))
		return false
	}
	a.AddStep("Service "+b.Name, false, "%s", answer.Lower(behind.Cause))
	a.Cause = "The Service " + b.Name + " behind the Ingress has nothing to answer with: " + answer.Lower(behind.Cause)
	a.Through, a.Hop, a.HopName, a.State = behind, behind.Hop, behind.HopName, behind.State
	return true
}

// routeStatus is the part of the status of routes of the Gateway API that explanations read.
type routeStatus struct {
	metav1.ObjectMeta `json:"metadata"`
	Status            struct {
		Parents []struct {
			ParentRef struct {
				Name string `json:"name"`
			} `json:"parentRef"`
			ControllerName string             `json:"controllerName"`
			Conditions     []lookup.Condition `json:"conditions"`
		} `json:"parents"`
	} `json:"status"`
}

// httpRoute explains an HTTPRoute of the Gateway API by what its gateways say of it.
func (r *reader) httpRoute(ctx context.Context, t Target) (*Answer, error) {
	route, err := lookup.Load[routeStatus](ctx, r.Reader, t.Resource, t.Namespace, t.Name)
	if err != nil {
		return nil, err
	}
	a := (&Answer{Object: t.ref(), State: Stuck}).At(hop.Network)
	if route.DeletionTimestamp != nil {
		return r.ending(&route.ObjectMeta, a), nil
	}
	if len(route.Status.Parents) == 0 {
		a.Cause = "No Gateway has taken the route: its status names none."
		return a.Because(a.Object, "status.parents", "empty", time.Time{}).
			Do("check spec.parentRefs, and that the Gateway exists and its class has a controller"), nil
	}
	accepted := true
	for _, parent := range route.Status.Parents {
		accepted = accepted && slices.ContainsFunc(parent.Conditions, func(c lookup.Condition) bool {
			return c.Type == "Accepted" && c.Status == "True"
		})
		for _, name := range []string{"Accepted", "ResolvedRefs"} {
			for _, c := range parent.Conditions {
				if c.Type == name && c.Status == "False" {
					a.Cause = "The Gateway " + parent.ParentRef.Name + " does not serve the route (" + c.Reason + "): " +
						answer.Sentence(c.Message) + "."
					return a.Because(a.Object, "status.parents["+parent.ParentRef.Name+"].conditions["+name+"]", c.Reason+": "+c.Message,
						c.Time()), nil
				}
			}
		}
	}
	if !accepted {
		a.State, a.Cause = Unknown, "Not every Gateway that the status of the route names has said whether it accepts it."
		return a, nil
	}
	a.State, a.Hop, a.HopName = Working, 0, ""
	a.Cause = "The route is accepted by " + answer.Plural(len(route.Status.Parents), "Gateway") + ", and everything that it names is there."
	return a, nil
}
