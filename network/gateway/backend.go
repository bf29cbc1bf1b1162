package gateway

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/route"
)

// addBackend adds a backend to a rule. One that cannot be used keeps its share of the requests, which are answered with an error.
func (t *translation) addBackend(rule *route.Rule, b *gw.BackendRef, filters []gw.HTTPRouteFilter, grpc bool) {
	ref, ok := t.backend(&b.BackendObjectReference, grpc)
	out := route.Backend{Ref: ref, Weight: int(deref(b.Weight, 1)), Broken: !ok}
	var f route.Filters
	if !t.addFilters(&f, filters) {
		out.Broken = true
	}
	if f.Redirect != nil || f.Rewrite != "" || f.FullPath != "" || f.Hostname != "" || f.CORS != nil || len(f.Mirrors) > 0 {
		t.refuse("backends change headers only; other filters belong to the rule")
	}
	out.Request, out.Response = f.Request, f.Response
	rule.Backends = append(rule.Backends, out)
}

// backend finds the endpoints that a reference leads to.
func (t *translation) backend(b *gw.BackendObjectReference, grpc bool) (route.Ref, bool) {
	none := route.Ref{}
	if deref(b.Group, "") != "" || deref(b.Kind, kindService) != kindService {
		t.unresolved(gw.RouteReasonInvalidKind, "backends are Services, and not objects of the kind %s", deref(b.Kind, kindService))
		return none, false
	}
	k := key{string(deref(b.Namespace, gw.Namespace(t.route.GetNamespace()))), string(b.Name)}
	if !permits(t.grants, reference{t.route.kind, t.route.GetNamespace(), "", kindService, k}) {
		t.unresolved(gw.RouteReasonRefNotPermitted, "no ReferenceGrant in the namespace %s lets the %s refer to the Service %s", k.namespace, t.route.kind, k.name)
		return none, false
	}
	t.plan.services[k] = true
	svc := t.service(k)
	if svc == nil {
		t.unresolved(gw.RouteReasonBackendNotFound, "there is no Service %s", k)
		return none, false
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		t.unresolved(gw.RouteReasonUnsupportedProtocol, "the Service %s is of the type ExternalName, which has no endpoints; those are not served here", k)
		return none, false
	}
	at := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return b.Port != nil && p.Port == *b.Port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	})
	if at < 0 {
		t.unresolved(gw.RouteReasonBackendNotFound, "the Service %s has no TCP port %d", k, deref(b.Port, 0))
		return none, false
	}
	p := svc.Spec.Ports[at]
	ref := route.Ref{Namespace: k.namespace, Service: k.name, Port: p.Name, Number: p.Port, Protocol: spoken(p.AppProtocol, grpc)}
	ref.Sticky = svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	if ref.Protocol == "" {
		t.unresolved(gw.RouteReasonUnsupportedProtocol, "port %d of the Service %s speaks %s, which is not supported", p.Port, k, *p.AppProtocol)
		return none, false
	}
	return t.secure(ref, p.Name)
}

// spoken is what the endpoints of a port speak; empty for something that is not known.
func spoken(said *string, grpc bool) route.Protocol {
	usual := route.HTTP
	if grpc {
		usual = route.GRPC
	}
	switch deref(said, "") {
	case "kubernetes.io/h2c", "grpc":
		return route.H2C
	case "https", "kubernetes.io/wss":
		return route.HTTPS
	}
	return usual
}

// secure makes endpoints prove who they are, if a policy says so. Where they cannot, nobody is asked.
func (t *translation) secure(ref route.Ref, port string) (route.Ref, bool) {
	service := key{ref.Namespace, ref.Service}
	for _, p := range t.backendPolicies[service] { // those that lose have a status too
		p.usedBy(t.gateway)
	}
	p := t.policyFor(service, port)
	if p == nil {
		return ref, true
	}
	if !p.accepted.isGood() || !p.references.isGood() && p.ca == "" && !p.system {
		return ref, false
	}
	ref.Protocol, ref.CA, ref.SystemCA, ref.ServerName, ref.AltNames = route.HTTPS, p.ca, p.system, string(p.Spec.Validation.Hostname), p.names
	ref.Identity = t.gateway.identity
	return ref, true
}
