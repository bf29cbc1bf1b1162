// Package gatewayplan decides what a Gateway controller does: which listeners of the Gateways are served, which routes
// are attached to them, which rules the HTTP proxy gets, and what the statuses of all objects of the Gateway API say.
// Everything here is a pure function of a World, the objects of the cluster. Package gateway reads the World and
// carries out the Plan.
package gatewayplan

import (
	"cmp"
	"crypto/tls"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/httpproxy"
)

// key is the namespace and name of an object.
type key = types.NamespacedName

// World holds the objects that the configuration of the proxy and the statuses are decided from.
type World struct {
	Classes      []*gw.GatewayClass
	Gateways     []*gw.Gateway
	HTTPRoutes   []*gw.HTTPRoute
	GRPCRoutes   []*gw.GRPCRoute
	TLSRoutes    []*gw.TLSRoute
	Grants       []*gw.ReferenceGrant
	Policies     []*gw.BackendTLSPolicy
	ListenerSets []*gw.ListenerSet
	// NamespaceLabels returns the labels of a namespace. Service, Secret and ConfigMap return an object, or nil if there is none.
	NamespaceLabels func(namespace string) map[string]string
	Service         func(types.NamespacedName) *corev1.Service
	Secret          func(types.NamespacedName) *corev1.Secret
	ConfigMap       func(types.NamespacedName) *corev1.ConfigMap
	// Certificate parses the certificate and key of a Secret.
	Certificate func(*corev1.Secret) (*httpproxy.Certificate, error)
}

// Plan is what Decide makes of a World.
type Plan struct {
	Classes      []*gw.GatewayClass // those that name this controller
	Gateways     []*Gateway
	ListenerSets []*ListenerSet
	Routes       []*Route
	Policies     []*Policy
	// Services, Secrets and ConfigMaps are the objects that the plan depends on, also those that do not exist.
	Services, Secrets, ConfigMaps map[types.NamespacedName]bool
	withRules                     map[types.UID]bool // see HasRules
}

// HasRules reports whether the route with a UID has rules in the plan. Routes of different kinds may have the same name.
func (p *Plan) HasRules(route types.UID) bool { return p.withRules[route] }

// Owners returns the names of the routes that have rules in the plan.
func (p *Plan) Owners() map[httpproxy.Owner]bool {
	owners := map[httpproxy.Owner]bool{}
	for _, g := range p.Gateways {
		for _, l := range g.listeners {
			for i := range l.rules {
				owners[l.rules[i].Owner] = true
			}
		}
	}
	return owners
}

// Gateway is a Gateway of our classes with what was decided about it.
type Gateway struct {
	*gw.Gateway
	// refused is why the Gateway is not accepted, badReference why a reference of the Gateway itself is not resolved.
	refused, badReference Problem
	identity              string // the client certificate and key for backends, as PEM
	insecure              bool   // clients without a verified certificate are accepted
	listeners             []*listener
	sets                  int32 // how many ListenerSets are attached
}

// Sections returns the listeners of a port as the proxy serves them. The function pool returns the pool of a backend.
func (g *Gateway) Sections(port int32, pool func(httpproxy.Ref) *httpproxy.Pool) (out []httpproxy.Section) {
	for _, l := range g.listeners {
		if l.Port != port || !l.isServing() {
			continue
		}
		s := httpproxy.Section{Host: strings.ToLower(l.host()), Table: httpproxy.NewTable(l.rules, pool).AnyDepth(),
			Stream: l.Protocol == gw.TLSProtocolType}
		s.Certificates = append([]*tls.Certificate(nil), l.certificates...)
		s.ClientCAs, s.Unverified = l.clients.authorities, l.clients.unverified
		out = append(out, s)
	}
	return out
}

// Problem is the reason and message of a condition that reports a failure. The zero value means that there is none.
type Problem struct{ Reason, Message string }

// IsZero reports whether there is no problem.
func (v Problem) IsZero() bool { return v.Reason == "" }

// listener is a listener of a Gateway or of a ListenerSet.
type listener struct {
	*gw.Listener
	gateway *Gateway
	set     *ListenerSet // nil for a listener of the Gateway itself
	kinds   []gw.RouteGroupKind
	// refused, conflicted and badReference are the problems of the listener. It serves clients if it is neither refused nor conflicted and
	// has the certificates that it needs.
	refused, conflicted, badReference Problem
	certificates                      []*httpproxy.Certificate
	clients                           clientValidation
	attached                          int32
	rules                             []httpproxy.Rule
}

// namespace returns the namespace of the object that has the listener.
func (l *listener) namespace() string {
	if l.set != nil {
		return l.set.Namespace
	}
	return l.gateway.Namespace
}

// host returns the host name of the listener, or "" for all hosts.
func (l *listener) host() string {
	if l.Hostname == nil {
		return ""
	}
	return string(*l.Hostname)
}

// isSecure reports whether clients connect with TLS.
func (l *listener) isSecure() bool {
	return l.Protocol == gw.HTTPSProtocolType || l.Protocol == gw.TLSProtocolType
}

// passesTLS reports whether TLS is passed through to the backends.
func (l *listener) passesTLS() bool {
	return l.Protocol == gw.TLSProtocolType && l.TLS != nil && l.TLS.Mode != nil && *l.TLS.Mode == gw.TLSModePassthrough
}

// isValid reports whether the listener has no problem at all.
func (l *listener) isValid() bool {
	return l.refused.IsZero() && l.conflicted.IsZero() && l.badReference.IsZero()
}

// isServing reports whether the listener accepts clients.
func (l *listener) isServing() bool {
	if !l.gateway.refused.IsZero() || !l.refused.IsZero() || !l.conflicted.IsZero() || l.set != nil && !l.set.refused.IsZero() {
		return false
	}
	return !l.isSecure() || l.passesTLS() || len(l.certificates) > 0
}

// The group of the Gateway API, its kinds, and those that it refers to.
const (
	group            = gw.GroupName
	kindGateway      = "Gateway"
	kindListenerSet  = "ListenerSet"
	kindHTTPRoute    = "HTTPRoute"
	kindGRPCRoute    = "GRPCRoute"
	kindTLSRoute     = "TLSRoute"
	kindService      = "Service"
	kindSecret       = "Secret"
	kindConfigMap    = "ConfigMap"
	kindGatewayClass = "GatewayClass"
)

// older orders objects by age, and those of the same second by name. In a conflict the older object wins.
func older[T metav1.Object](a, b T) int {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// sorted returns objects in the order of older, without those that are being deleted.
func sorted[T metav1.Object](list []T) []T {
	list = slices.DeleteFunc(slices.Clone(list), func(o T) bool { return o.GetDeletionTimestamp() != nil })
	slices.SortFunc(list, older)
	return list
}

// deref returns the value that a pointer points to, or a default for nil.
func deref[T any](p *T, fallback T) T {
	if p == nil {
		return fallback
	}
	return *p
}
