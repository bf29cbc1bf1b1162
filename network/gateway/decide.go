package gateway

import (
	"fmt"
	"slices"
	"strings"

	gw "sigs.k8s.io/gateway-api/apis/v1"
)

// decide makes a plan of a world. It is a pure function: the same objects make the same plan in every server.
func decide(w *world) *plan {
	d := &decision{world: w, plan: plan{services: map[key]bool{}, secrets: map[key]bool{}, configMaps: map[key]bool{}}, byName: map[key]*gateway{}, bySet: map[key]*listenerSet{}}
	ours := map[string]bool{}
	for _, c := range sorted(w.classes) {
		if c.Spec.ControllerName == Controller {
			d.plan.classes = append(d.plan.classes, c)
			ours[c.Name] = true
		}
	}
	for _, g := range sorted(w.gateways) {
		if ours[string(g.Spec.GatewayClassName)] {
			d.addGateway(g)
		}
	}
	for _, s := range sorted(w.listeners) {
		d.addListenerSet(s)
	}
	for _, g := range d.plan.gateways {
		findConflicts(g.listeners)
	}
	for _, s := range d.plan.sets {
		if s.refused.isGood() && slices.ContainsFunc(s.listeners, (*listener).isValid) {
			s.gateway.sets++
		}
	}
	d.readPolicies()
	d.attachRoutes()
	return &d.plan
}

// decision is a plan that is being made.
type decision struct {
	*world
	plan   plan
	byName map[key]*gateway
	bySet  map[key]*listenerSet
	// backendPolicies are the policies for backends, by Service.
	backendPolicies map[key][]*policy
}

// addGateway decides about a Gateway and its listeners.
func (d *decision) addGateway(g *gw.Gateway) {
	out := &gateway{Gateway: g}
	out.refused = refuseGateway(g)
	d.readGatewayTLS(out)
	for i := range g.Spec.Listeners {
		l := &listener{Listener: &g.Spec.Listeners[i], gateway: out}
		d.readListener(l)
		out.listeners = append(out.listeners, l)
	}
	d.plan.gateways = append(d.plan.gateways, out)
	d.byName[keyOf(g)] = out
}

// refuseGateway says why a Gateway cannot be accepted as a whole.
func refuseGateway(g *gw.Gateway) verdict {
	if i := g.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		return verdict{string(gw.GatewayReasonInvalidParameters), fmt.Sprintf("there are no parameters of the kind %s here", i.ParametersRef.Kind)}
	}
	for _, a := range g.Spec.Addresses {
		if t := deref(a.Type, gw.IPAddressType); t != gw.IPAddressType {
			return verdict{string(gw.GatewayReasonUnsupportedAddress), fmt.Sprintf("addresses of the type %s are not supported; %s is", t, gw.IPAddressType)}
		}
	}
	return verdict{}
}

// readListener decides about a listener alone, whatever the others are.
func (d *decision) readListener(l *listener) {
	supported := kindsOf(l.Protocol)
	if supported == nil {
		l.refused = verdict{string(gw.ListenerReasonUnsupportedProtocol), fmt.Sprintf("the protocol %s is not served; HTTP, HTTPS and TLS are", l.Protocol)}
		l.kinds = []gw.RouteGroupKind{}
		return
	}
	l.kinds, l.references = allowedKinds(l.AllowedRoutes, supported)
	if l.isSecure() && !l.passesTLS() {
		d.readCertificates(l)
		d.readClientValidation(l)
	}
}

// kindsOf are the routes that a protocol can have; nil for a protocol that is not served.
func kindsOf(p gw.ProtocolType) []string {
	switch p {
	case gw.HTTPProtocolType, gw.HTTPSProtocolType:
		return []string{kindHTTPRoute, kindGRPCRoute}
	case gw.TLSProtocolType:
		return []string{kindTLSRoute}
	}
	return nil
}

// allowedKinds are the kinds that a listener takes, and what is wrong with the others that it names.
func allowedKinds(allowed *gw.AllowedRoutes, supported []string) ([]gw.RouteGroupKind, verdict) {
	out := []gw.RouteGroupKind{}
	if allowed == nil || len(allowed.Kinds) == 0 {
		for _, k := range supported {
			out = append(out, gw.RouteGroupKind{Group: new(gw.Group(group)), Kind: gw.Kind(k)})
		}
		return out, verdict{}
	}
	var bad []string
	for _, k := range allowed.Kinds {
		known := false
		for _, s := range supported {
			known = known || deref(k.Group, group) == group && string(k.Kind) == s
		}
		if known {
			out = append(out, gw.RouteGroupKind{Group: new(gw.Group(group)), Kind: k.Kind})
		} else {
			bad = append(bad, string(k.Kind))
		}
	}
	if len(bad) > 0 {
		return out, verdict{string(gw.ListenerReasonInvalidRouteKinds), "the protocol of the listener has no routes of the kind " + strings.Join(bad, ", ")}
	}
	return out, verdict{}
}

// findConflicts marks listeners that want the same port in ways that exclude each other. Those of the Gateway come before those of its
// ListenerSets, and keep the port, and so does the older of two sets; among themselves, the listeners of one object all lose it. Anybody
// may make ListenerSets where a Gateway lets them, so that no listener is compared with all the others.
func findConflicts(list []*listener) {
	before := taken{map[protocolAt]int{}, map[hostAt]int{}}
	for i, l := range list {
		if at, found := before.by(l, nil); found {
			l.conflicted = conflict(l, list[at])
		}
		before.add(l, nil, i, false)
	}
	after := taken{map[protocolAt]int{}, map[hostAt]int{}}
	for i, l := range slices.Backward(list) {
		if at, found := after.by(l, l.set); found && l.conflicted.isGood() {
			l.conflicted = conflict(l, list[at])
		}
		after.add(l, l.set, i, true)
	}
}

// taken are the ports of listeners, of all or by the set that they are of. The numbers are places in a list of listeners.
type taken struct {
	protocols map[protocolAt]int
	hosts     map[hostAt]int
}

type protocolAt struct {
	set    *listenerSet
	port   int32
	secure bool
}

type hostAt struct {
	set  *listenerSet
	port int32
	host string
}

// add notes a listener. With over it takes the place of another one that wants the same.
func (t taken) add(l *listener, set *listenerSet, at int, over bool) {
	if !l.refused.isGood() {
		return
	}
	protocol, host := protocolAt{set, l.Port, l.isSecure()}, hostAt{set, l.Port, l.host()}
	if _, found := t.protocols[protocol]; !found || over {
		t.protocols[protocol] = at
	}
	if _, found := t.hosts[host]; !found || over {
		t.hosts[host] = at
	}
}

// by is the first listener that excludes another one.
func (t taken) by(l *listener, set *listenerSet) (first int, found bool) {
	look := func(at int, ok bool) {
		if ok && (!found || at < first) {
			first, found = at, true
		}
	}
	at, ok := t.protocols[protocolAt{set, l.Port, !l.isSecure()}]
	switch {
	case l.refused.isGood():
		look(at, ok)
		at, ok = t.hosts[hostAt{set, l.Port, l.host()}]
		look(at, ok)
	case l.Protocol == gw.TCPProtocolType: // it excludes all
		look(at, ok)
		at, ok = t.protocols[protocolAt{set, l.Port, l.isSecure()}]
		look(at, ok)
	}
	return first, found
}

// conflict says why a listener cannot have the port of another one. One that is refused keeps nobody from a port.
func conflict(l, other *listener) verdict {
	protocol := verdict{string(gw.ListenerReasonProtocolConflict), fmt.Sprintf("port %d is used with another protocol by the listener %s", l.Port, other.Name)}
	switch {
	case l.Port != other.Port || !other.refused.isGood():
		return verdict{}
	case !l.refused.isGood() && l.Protocol == gw.TCPProtocolType:
		return protocol
	case !l.refused.isGood():
		return verdict{}
	case l.isSecure() != other.isSecure():
		return protocol
	case l.host() == other.host():
		return verdict{string(gw.ListenerReasonHostnameConflict), fmt.Sprintf("the listener %s has the same port and host name", other.Name)}
	}
	return verdict{}
}
