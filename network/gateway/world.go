package gateway

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/route"
)

// key names an object in a namespace.
type key struct{ namespace, name string }

func (k key) String() string { return k.namespace + "/" + k.name }

func keyOf(o metav1.Object) key { return key{o.GetNamespace(), o.GetName()} }

// world is everything that the configuration of the proxy and the statuses are decided from.
type world struct {
	classes   []*gw.GatewayClass
	gateways  []*gw.Gateway
	http      []*gw.HTTPRoute
	grpc      []*gw.GRPCRoute
	tls       []*gw.TLSRoute
	grants    []*gw.ReferenceGrant
	policies  []*gw.BackendTLSPolicy
	listeners []*gw.ListenerSet
	// These find objects; nil where there is none. labels are those of a namespace.
	labels    func(namespace string) map[string]string
	service   func(key) *corev1.Service
	secret    func(key) *corev1.Secret
	configMap func(key) *corev1.ConfigMap
	// certificate reads the certificate and key of a Secret.
	certificate func(*corev1.Secret) (*route.Certificate, error)
}

// plan is what follows from a world.
type plan struct {
	classes  []*gw.GatewayClass // those that are ours
	gateways []*gateway
	sets     []*listenerSet
	routes   []*attachedRoute
	policies []*policy
	// services, secrets and configMaps are what the plan would change with, also those that are missing.
	services, secrets, configMaps map[key]bool
}

// gateway is a Gateway of ours with what was decided about it.
type gateway struct {
	*gw.Gateway
	// refused says why the Gateway is not accepted.
	refused verdict
	// references says what is wrong with the references of the Gateway itself, identity is the certificate and key that backends are
	// shown.
	references verdict
	identity   string
	insecure   bool // clients whose certificate nobody vouches for are let in
	listeners  []*listener
	sets       int32 // how many ListenerSets are attached
}

// verdict is why something is not as it should be; the zero value says that nothing is wrong.
type verdict struct{ reason, message string }

func (v verdict) isGood() bool { return v.reason == "" }

// listener is one of a Gateway or of a ListenerSet.
type listener struct {
	*gw.Listener
	gateway *gateway
	set     *listenerSet // nil for one of the Gateway itself
	kinds   []gw.RouteGroupKind
	// refused, conflicted and references say what is wrong with it. A listener serves if it is neither refused nor conflicted, and has the
	// certificates that it needs.
	refused, conflicted, references verdict
	certificates                    []*route.Certificate
	clients                         clientValidation
	attached                        int32
	rules                           []route.Rule
}

// namespace is the one that the listener was written in.
func (l *listener) namespace() string {
	if l.set != nil {
		return l.set.Namespace
	}
	return l.gateway.Namespace
}

// host is the host name of the listener; empty for all.
func (l *listener) host() string {
	if l.Hostname == nil {
		return ""
	}
	return string(*l.Hostname)
}

// isSecure says that clients speak TLS.
func (l *listener) isSecure() bool {
	return l.Protocol == gw.HTTPSProtocolType || l.Protocol == gw.TLSProtocolType
}

// passesTLS says that the TLS of clients is not ended here.
func (l *listener) passesTLS() bool {
	return l.Protocol == gw.TLSProtocolType && l.TLS != nil && l.TLS.Mode != nil && *l.TLS.Mode == gw.TLSModePassthrough
}

// isValid says that nothing is wrong with the listener.
func (l *listener) isValid() bool {
	return l.refused.isGood() && l.conflicted.isGood() && l.references.isGood()
}

// serves says that the listener takes clients.
func (l *listener) serves() bool {
	if !l.gateway.refused.isGood() || !l.refused.isGood() || !l.conflicted.isGood() || l.set != nil && !l.set.refused.isGood() {
		return false
	}
	return !l.isSecure() || l.passesTLS() || len(l.certificates) > 0
}

// The group of the standard's kinds, and the kinds.
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

// older orders objects by age, and those of the same second by name. What two want belongs to the older one.
func older[T metav1.Object](a, b T) int {
	at, bt := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	return cmp.Or(at.Compare(bt.Time), cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
}

// sorted returns objects in the order of older, without those that are about to be deleted.
func sorted[T metav1.Object](list []T) []T {
	list = slices.DeleteFunc(slices.Clone(list), func(o T) bool { return o.GetDeletionTimestamp() != nil })
	slices.SortFunc(list, older)
	return list
}

// deref is the value behind a pointer, or another one.
func deref[T any](p *T, other T) T {
	if p == nil {
		return other
	}
	return *p
}
