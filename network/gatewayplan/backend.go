package gatewayplan

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/httpproxy"
)

// addBackend adds a backend to a rule. A backend that cannot be used keeps its share of the requests, which are answered with an error.
func (t *translation) addBackend(rule *httpproxy.Rule, b *gw.BackendRef, filters []gw.HTTPRouteFilter, grpc bool) {
	ref, ok := t.backend(&b.BackendObjectReference, grpc)
	out := httpproxy.Backend{Ref: ref, Weight: int(deref(b.Weight, 1)), Broken: !ok}
	var f httpproxy.Filters
	if !t.addFilters(&f, filters) {
		out.Broken = true
	}
	if f.Redirect != nil || f.Rewrite != "" || f.FullPath != "" || f.Hostname != "" || f.CORS != nil || len(f.Mirrors) > 0 {
		t.refuse("backends change headers only; other filters belong to the rule")
	}
	out.Request, out.Response = f.Request, f.Response
	rule.Backends = append(rule.Backends, out)
}

// backend returns the Service port behind a reference, and false if the reference is not resolved.
func (t *translation) backend(b *gw.BackendObjectReference, grpc bool) (httpproxy.Ref, bool) {
	none := httpproxy.Ref{}
	if deref(b.Group, "") != "" || deref(b.Kind, kindService) != kindService {
		t.refuseReference(gw.RouteReasonInvalidKind, "backends are Services, and not objects of the kind %s", deref(b.Kind, kindService))
		return none, false
	}
	k := key{Namespace: string(deref(b.Namespace, gw.Namespace(t.route.GetNamespace()))), Name: string(b.Name)}
	if !permits(t.Grants, reference{t.route.Kind, t.route.GetNamespace(), "", kindService, k}) {
		t.refuseReference(gw.RouteReasonRefNotPermitted, "no ReferenceGrant in the namespace %s lets the %s refer to the Service %s", k.Namespace, t.route.Kind, k.Name)
		return none, false
	}
	t.plan.Services[k] = true
	svc := t.Service(k)
	if svc == nil {
		t.refuseReference(gw.RouteReasonBackendNotFound, "there is no Service %s", k)
		return none, false
	}
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		t.refuseReference(gw.RouteReasonUnsupportedProtocol, "the Service %s is of the type ExternalName, which has no endpoints; those are not served here", k)
		return none, false
	}
	at := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return b.Port != nil && p.Port == *b.Port && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	})
	if at < 0 {
		t.refuseReference(gw.RouteReasonBackendNotFound, "the Service %s has no TCP port %d", k, deref(b.Port, 0))
		return none, false
	}
	p := svc.Spec.Ports[at]
	ref := httpproxy.Ref{Namespace: k.Namespace, Service: k.Name, Port: p.Name, Number: p.Port, Protocol: appProtocol(p.AppProtocol, grpc)}
	ref.Sticky = svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
	if ref.Protocol == "" {
		t.refuseReference(gw.RouteReasonUnsupportedProtocol, "port %d of the Service %s speaks %s, which is not supported", p.Port, k,
			*p.AppProtocol)
		return none, false
	}
	return t.secure(ref, p.Name)
}

// appProtocol returns the protocol of the endpoints of a Service port.
func appProtocol(name *string, grpc bool) httpproxy.Protocol {
	usual := httpproxy.HTTP
	if grpc {
		usual = httpproxy.GRPC
	}
	switch deref(name, "") {
	case "kubernetes.io/h2c", "grpc":
		return httpproxy.H2C
	case "https", "kubernetes.io/wss":
		return httpproxy.HTTPS
	}
	return usual
}

// secure applies the BackendTLSPolicy of a Service port, if there is one. It returns false if the policy is not valid: then the backend is
// not used.
func (t *translation) secure(ref httpproxy.Ref, port string) (httpproxy.Ref, bool) {
	service := key{Namespace: ref.Namespace, Name: ref.Service}
	for _, p := range t.backendPolicies[service] { // also those that lost the target: they have a status too
		p.usedBy(t.gateway)
	}
	p := t.policyFor(service, port)
	if p == nil {
		return ref, true
	}
	if !p.rejected.IsZero() || !p.badReference.IsZero() && p.ca == "" && !p.system {
		return ref, false
	}
	ref.Protocol, ref.CA, ref.SystemCA, ref.ServerName, ref.AltNames = httpproxy.HTTPS, p.ca, p.system, string(p.Spec.Validation.Hostname),
		p.names
	ref.Identity = t.gateway.identity
	return ref, true
}
