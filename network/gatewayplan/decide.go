package gatewayplan

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/proxysync"
)

// Controller is the controller name in the GatewayClasses that are served here.
const Controller = "proa.dev/gateway"

// Decide makes the plan for a world. The same objects make the same plan in every server.
func Decide(w *World) *Plan {
	d := &decision{World: w, plan: Plan{Services: map[key]bool{}, Secrets: map[key]bool{}, ConfigMaps: map[key]bool{},
		withRules: map[types.UID]bool{}},
		byName: map[key]*Gateway{}, bySet: map[key]*ListenerSet{}}
	classes := map[string]bool{}
	for _, c := range sorted(w.Classes) {
		if c.Spec.ControllerName == Controller {
			d.plan.Classes = append(d.plan.Classes, c)
			classes[c.Name] = true
		}
	}
	for _, g := range sorted(w.Gateways) {
		if classes[string(g.Spec.GatewayClassName)] {
			d.addGateway(g)
		}
	}
	for _, s := range sorted(w.ListenerSets) {
		d.addListenerSet(s)
	}
	for _, g := range d.plan.Gateways {
		findConflicts(g.listeners)
	}
	for _, s := range d.plan.ListenerSets {
		if s.refused.IsZero() && slices.ContainsFunc(s.listeners, (*listener).isValid) {
			s.gateway.sets++
		}
	}
	d.readPolicies()
	d.attachRoutes()
	return &d.plan
}

// decision is a plan under construction.
type decision struct {
	*World
	plan   Plan
	byName map[key]*Gateway
	bySet  map[key]*ListenerSet
	// backendPolicies are the BackendTLSPolicies by the Service that they target.
	backendPolicies map[key][]*Policy
}

// addGateway decides about a Gateway and its listeners.
func (d *decision) addGateway(g *gw.Gateway) {
	out := &Gateway{Gateway: g}
	out.refused = refuseGateway(g)
	d.readGatewayTLS(out)
	for i := range g.Spec.Listeners {
		l := &listener{Listener: &g.Spec.Listeners[i], gateway: out}
		d.readListener(l)
		out.listeners = append(out.listeners, l)
	}
	d.plan.Gateways = append(d.plan.Gateways, out)
	d.byName[proxysync.KeyOf(g)] = out
}

// refuseGateway returns why a Gateway cannot be accepted at all.
func refuseGateway(g *gw.Gateway) Problem {
	if i := g.Spec.Infrastructure; i != nil && i.ParametersRef != nil {
		return Problem{string(gw.GatewayReasonInvalidParameters),
			fmt.Sprintf("there are no parameters of the kind %s here", i.ParametersRef.Kind)}
	}
	for _, a := range g.Spec.Addresses {
		if t := deref(a.Type, gw.IPAddressType); t != gw.IPAddressType {
			return Problem{string(gw.GatewayReasonUnsupportedAddress),
				fmt.Sprintf("addresses of the type %s are not supported; %s is", t, gw.IPAddressType)}
		}
	}
	return Problem{}
}

// readListener decides what does not depend on other listeners.
func (d *decision) readListener(l *listener) {
	supported := kindsOf(l.Protocol)
	if supported == nil {
		l.refused = Problem{string(gw.ListenerReasonUnsupportedProtocol),
			fmt.Sprintf("the protocol %s is not served; HTTP, HTTPS and TLS are", l.Protocol)}
		l.kinds = []gw.RouteGroupKind{}
		return
	}
	l.kinds, l.badReference = allowedKinds(l.AllowedRoutes, supported)
	if l.isSecure() && !l.passesTLS() {
		d.readCertificates(l)
		d.readClientValidation(l)
	}
}

// kindsOf returns the kinds of routes that a protocol supports; nil for a protocol that is not served.
func kindsOf(p gw.ProtocolType) []string {
	switch p {
	case gw.HTTPProtocolType, gw.HTTPSProtocolType:
		return []string{kindHTTPRoute, kindGRPCRoute}
	case gw.TLSProtocolType:
		return []string{kindTLSRoute}
	}
	return nil
}

// allowedKinds returns the kinds of routes that a listener allows, and a problem if it names others.
func allowedKinds(allowed *gw.AllowedRoutes, supported []string) ([]gw.RouteGroupKind, Problem) {
	out := []gw.RouteGroupKind{}
	if allowed == nil || len(allowed.Kinds) == 0 {
		for _, k := range supported {
			out = append(out, gw.RouteGroupKind{Group: new(gw.Group(group)), Kind: gw.Kind(k)})
		}
		return out, Problem{}
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
		return out, Problem{string(gw.ListenerReasonInvalidRouteKinds),
			"the protocol of the listener has no routes of the kind " + strings.Join(bad, ", ")}
	}
	return out, Problem{}
}

// findConflicts marks the listeners that cannot share a port. A listener of the Gateway wins over those of its
// ListenerSets, and an older set wins over a younger one. Conflicting listeners of one object all lose the port.
// Listeners are looked up in maps rather than compared with each other, because users may create many ListenerSets.
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
		if at, found := after.by(l, l.set); found && l.conflicted.IsZero() {
			l.conflicted = conflict(l, list[at])
		}
		after.add(l, l.set, i, true)
	}
}

// taken indexes listeners by port, either all of them or those of each set. The values are positions in the list of listeners.
type taken struct {
	protocols map[protocolAt]int
	hosts     map[hostAt]int
}

type protocolAt struct {
	set    *ListenerSet
	port   int32
	secure bool
}

type hostAt struct {
	set  *ListenerSet
	port int32
	host string
}

// add adds a listener. With overwrite it replaces an earlier listener with the same port.
func (t taken) add(l *listener, set *ListenerSet, at int, overwrite bool) {
	if !l.refused.IsZero() {
		return
	}
	protocol, host := protocolAt{set, l.Port, l.isSecure()}, hostAt{set, l.Port, l.host()}
	if _, found := t.protocols[protocol]; !found || overwrite {
		t.protocols[protocol] = at
	}
	if _, found := t.hosts[host]; !found || overwrite {
		t.hosts[host] = at
	}
}

// by returns the first listener that conflicts with another one.
func (t taken) by(l *listener, set *ListenerSet) (first int, found bool) {
	consider := func(at int, ok bool) {
		if ok && (!found || at < first) {
			first, found = at, true
		}
	}
	at, ok := t.protocols[protocolAt{set, l.Port, !l.isSecure()}]
	switch {
	case l.refused.IsZero():
		consider(at, ok)
		at, ok = t.hosts[hostAt{set, l.Port, l.host()}]
		consider(at, ok)
	case l.Protocol == gw.TCPProtocolType: // it conflicts with all
		consider(at, ok)
		at, ok = t.protocols[protocolAt{set, l.Port, l.isSecure()}]
		consider(at, ok)
	}
	return first, found
}

// conflict returns why a listener cannot share the port of another one. A refused listener does not block a port.
func conflict(l, other *listener) Problem {
	protocol := Problem{string(gw.ListenerReasonProtocolConflict),
		fmt.Sprintf("port %d is used with another protocol by the listener %s", l.Port, other.Name)}
	switch {
	case l.Port != other.Port || !other.refused.IsZero():
		return Problem{}
	case !l.refused.IsZero() && l.Protocol == gw.TCPProtocolType:
		return protocol
	case !l.refused.IsZero():
		return Problem{}
	case l.isSecure() != other.isSecure():
		return protocol
	case l.host() == other.host():
		return Problem{string(gw.ListenerReasonHostnameConflict),
			fmt.Sprintf("the listener %s has the same port and host name", other.Name)}
	}
	return Problem{}
}
