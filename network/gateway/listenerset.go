package gateway

import (
	"fmt"

	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// listenerSet is a ListenerSet whose parent is a Gateway of ours.
type listenerSet struct {
	*gw.ListenerSet
	gateway   *gateway
	refused   verdict
	listeners []*listener
}

// addListenerSet adds the listeners of a set to its Gateway, if that lets it.
func (d *decision) addListenerSet(s *gw.ListenerSet) {
	parent := s.Spec.ParentRef
	if deref(parent.Group, group) != group || deref(parent.Kind, kindGateway) != kindGateway {
		return
	}
	g := d.byName[key{string(deref(parent.Namespace, gw.Namespace(s.Namespace))), string(parent.Name)}]
	if g == nil {
		return
	}
	out := &listenerSet{ListenerSet: s, gateway: g}
	d.plan.sets = append(d.plan.sets, out)
	d.bySet[keyOf(s)] = out
	allowed := g.Spec.AllowedListeners
	var from *gw.ListenerNamespaces
	if allowed != nil {
		from = allowed.Namespaces
	}
	if !d.allowsListeners(g, from, s.Namespace) {
		out.refused = verdict{string(gw.ListenerSetReasonNotAllowed), fmt.Sprintf("the Gateway %s allows no ListenerSets of the namespace %s", keyOf(g), s.Namespace)}
		return
	}
	for i := range s.Spec.Listeners {
		e := &s.Spec.Listeners[i]
		l := &listener{gateway: g, set: out, Listener: &gw.Listener{Name: e.Name, Hostname: e.Hostname, Port: e.Port, Protocol: e.Protocol, TLS: e.TLS, AllowedRoutes: e.AllowedRoutes}}
		d.readListener(l)
		out.listeners = append(out.listeners, l)
		g.listeners = append(g.listeners, l)
	}
}

// allowsListeners says that a Gateway takes ListenerSets of a namespace. Without a word it takes none.
func (d *decision) allowsListeners(g *gateway, from *gw.ListenerNamespaces, namespace string) bool {
	if from == nil {
		return false
	}
	return d.inNamespaces(deref(from.From, gw.NamespacesFromNone), from.Selector, g.Namespace, namespace)
}
