package gatewayplan

import (
	"fmt"

	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/proxysync"
)

// ListenerSet is a ListenerSet whose parent is one of our Gateways, with what was decided about it.
type ListenerSet struct {
	*gw.ListenerSet
	gateway   *Gateway
	refused   Problem
	listeners []*listener
}

// addListenerSet adds the listeners of a set to its Gateway, if the Gateway allows it.
func (d *decision) addListenerSet(s *gw.ListenerSet) {
	parent := s.Spec.ParentRef
	if deref(parent.Group, group) != group || deref(parent.Kind, kindGateway) != kindGateway {
		return
	}
	g := d.byName[key{Namespace: string(deref(parent.Namespace, gw.Namespace(s.Namespace))), Name: string(parent.Name)}]
	if g == nil {
		return
	}
	out := &ListenerSet{ListenerSet: s, gateway: g}
	d.plan.ListenerSets = append(d.plan.ListenerSets, out)
	d.bySet[proxysync.KeyOf(s)] = out
	allowed := g.Spec.AllowedListeners
	var from *gw.ListenerNamespaces
	if allowed != nil {
		from = allowed.Namespaces
	}
	if !d.allowsListeners(g, from, s.Namespace) {
		out.refused = Problem{string(gw.ListenerSetReasonNotAllowed),
			fmt.Sprintf("the Gateway %s allows no ListenerSets of the namespace %s", proxysync.KeyOf(g), s.Namespace)}
		return
	}
	for i := range s.Spec.Listeners {
		e := &s.Spec.Listeners[i]
		l := &listener{gateway: g, set: out,
			Listener: &gw.Listener{Name: e.Name, Hostname: e.Hostname, Port: e.Port, Protocol: e.Protocol, TLS: e.TLS,
				AllowedRoutes: e.AllowedRoutes}}
		d.readListener(l)
		out.listeners = append(out.listeners, l)
		g.listeners = append(g.listeners, l)
	}
}

// allowsListeners reports whether a Gateway allows ListenerSets of a namespace. By default it allows none.
func (d *decision) allowsListeners(g *Gateway, from *gw.ListenerNamespaces, namespace string) bool {
	if from == nil {
		return false
	}
	return d.inNamespaces(deref(from.From, gw.NamespacesFromNone), from.Selector, g.Namespace, namespace)
}
