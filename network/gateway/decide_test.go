package gateway

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
	"proa.dev/network/route"
)

// base is in the world of every case: our class, and Services in two namespaces.
const base = `{kind: GatewayClass, metadata: {name: proa}, spec: {controllerName: proa.dev/gateway}}
---
{kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}
---
{kind: Service, metadata: {name: web, namespace: other}, spec: {ports: [{port: 80}]}}
---
`

// parse reads a world. Objects are in the namespace default unless they say otherwise, and each is a second younger than the one before.
func parse(t *testing.T, text string) *world {
	t.Helper()
	namespaces, services := map[string]map[string]string{}, map[key]*corev1.Service{}
	secrets, maps := map[key]*corev1.Secret{}, map[key]*corev1.ConfigMap{}
	w := &world{
		labels: func(n string) map[string]string { return namespaces[n] }, service: func(k key) *corev1.Service { return services[k] },
		secret: func(k key) *corev1.Secret { return secrets[k] }, configMap: func(k key) *corev1.ConfigMap { return maps[k] },
		certificate: func(s *corev1.Secret) (*route.Certificate, error) {
			if len(s.StringData) == 0 {
				return nil, errors.New("it needs tls.crt and tls.key")
			}
			return &route.Certificate{}, nil
		},
	}
	age := 0
	read := func(doc string, into metav1.Object) {
		if err := yaml.UnmarshalStrict([]byte(doc), into); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		if into.GetNamespace() == "" {
			into.SetNamespace("default")
		}
		age++
		into.SetCreationTimestamp(metav1.Unix(int64(age), 0))
	}
	for doc := range strings.SplitSeq(base+text, "\n---\n") {
		var what metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &what); err != nil {
			t.Fatal(err)
		}
		switch what.Kind {
		case kindGatewayClass:
			w.classes = append(w.classes, &gw.GatewayClass{})
			read(doc, w.classes[len(w.classes)-1])
		case kindGateway:
			w.gateways = append(w.gateways, &gw.Gateway{})
			read(doc, w.gateways[len(w.gateways)-1])
		case kindListenerSet:
			w.listeners = append(w.listeners, &gw.ListenerSet{})
			read(doc, w.listeners[len(w.listeners)-1])
		case kindHTTPRoute:
			w.http = append(w.http, &gw.HTTPRoute{})
			read(doc, w.http[len(w.http)-1])
		case kindGRPCRoute:
			w.grpc = append(w.grpc, &gw.GRPCRoute{})
			read(doc, w.grpc[len(w.grpc)-1])
		case kindTLSRoute:
			w.tls = append(w.tls, &gw.TLSRoute{})
			read(doc, w.tls[len(w.tls)-1])
		case "ReferenceGrant":
			w.grants = append(w.grants, &gw.ReferenceGrant{})
			read(doc, w.grants[len(w.grants)-1])
		case "BackendTLSPolicy":
			w.policies = append(w.policies, &gw.BackendTLSPolicy{})
			read(doc, w.policies[len(w.policies)-1])
		case "Namespace":
			n := &corev1.Namespace{}
			read(doc, n)
			namespaces[n.Name] = n.Labels
		case kindService:
			s := &corev1.Service{}
			read(doc, s)
			services[keyOf(s)] = s
		case kindSecret:
			s := &corev1.Secret{}
			read(doc, s)
			secrets[keyOf(s)] = s
		case kindConfigMap:
			m := &corev1.ConfigMap{}
			read(doc, m)
			maps[keyOf(m)] = m
		default:
			t.Fatalf("what is a %s?", what.Kind)
		}
	}
	return w
}

// TestDecide makes plans of the worlds in testdata/plans.
func TestDecide(t *testing.T) {
	textcase.Decide(t, "testdata/plans/*.txt", "=>", func(t *testing.T, in string) string {
		t.Helper()
		return shown(decide(parse(t, in)))
	})
}

// shown is a plan as a text: listeners with their rules, then routes and policies, each with what is wrong.
func shown(p *plan) string {
	var b strings.Builder
	for _, g := range p.gateways {
		fmt.Fprintf(&b, "Gateway %s%s\n", g.Name, why("refused", g.refused)+why("references", g.references))
		for _, l := range g.listeners {
			fmt.Fprintf(&b, "  %s: serves %t, %d attached%s\n", l.Name, l.serves(), l.attached, why("refused", l.refused)+why("conflicted", l.conflicted)+why("references", l.references))
			for _, r := range l.rules {
				fmt.Fprintf(&b, "    %s\n", ruleText(&r))
			}
		}
	}
	for _, r := range p.routes {
		for _, parent := range r.parents {
			fmt.Fprintf(&b, "%s %s at %s%s\n", r.kind, r.GetName(), parent.ref.Name, why("refused", parent.accepted)+why("references", parent.references))
		}
	}
	for _, s := range p.sets {
		fmt.Fprintf(&b, "ListenerSet %s%s\n", s.Name, why("refused", s.refused))
	}
	for _, x := range p.policies {
		fmt.Fprintf(&b, "policy %s of %d Gateways%s\n", x.Name, len(x.gateways), why("refused", x.refused())+why("references", x.references))
	}
	return b.String()
}

func why(what string, v verdict) string {
	if v.isGood() {
		return ""
	}
	return fmt.Sprintf("; %s: %s (%s)", what, v.reason, v.message)
}

func ruleText(r *route.Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s %s", r.Host, r.Path, r.Kind)
	if r.LastElement != "" {
		fmt.Fprintf(&b, " ending with %s", r.LastElement)
	}
	if r.Method != "" {
		fmt.Fprintf(&b, " %s", r.Method)
	}
	for _, h := range r.Headers {
		fmt.Fprintf(&b, " %s=%s", h.Name, h.Value)
	}
	for _, q := range r.Query {
		fmt.Fprintf(&b, " ?%s=%s", q.Name, q.Value)
	}
	fmt.Fprintf(&b, " of %s ->", r.Owner)
	for _, to := range r.Backends {
		switch {
		case to.Broken:
			fmt.Fprintf(&b, " broken*%d", to.Weight)
		default:
			fmt.Fprintf(&b, " %s*%d", to.Ref, to.Weight)
		}
		if to.Ref.ServerName != "" {
			fmt.Fprintf(&b, " as %s", to.Ref.ServerName)
		}
	}
	if f := r.Filters; f.Redirect != nil {
		fmt.Fprintf(&b, " redirect %+v", *f.Redirect)
	}
	if r.Rewrite+r.FullPath+r.Hostname != "" {
		fmt.Fprintf(&b, " rewrite %q %q %q", r.Filters.Rewrite, r.FullPath, r.Hostname)
	}
	if r.Timeout+r.BackendTimeout > 0 {
		fmt.Fprintf(&b, " within %s, %s", r.Timeout, r.BackendTimeout)
	}
	if c := r.Request; len(c.Set)+len(c.Add)+len(c.Remove) > 0 {
		fmt.Fprintf(&b, " headers %+v", c)
	}
	for _, m := range r.Mirrors {
		fmt.Fprintf(&b, " mirror %s %d/%d", m.Ref, m.Numerator, m.Denominator)
	}
	return b.String()
}

// TestIntersect holds which names a listener and a route have in common, whichever is which.
func TestIntersect(t *testing.T) {
	for _, c := range [][3]string{
		{"", "a.example.com", "a.example.com"}, {"a.example.com", "a.example.com", "a.example.com"}, {"*.example.com", "a.example.com", "a.example.com"},
		{"*.example.com", "a.b.example.com", "a.b.example.com"}, {"*.example.com", "*.b.example.com", "*.b.example.com"}, {"*.example.com", "example.com", "none"},
		{"*.example.com", "badexample.com", "none"}, {"a.example.com", "b.example.com", "none"}, {"*.example.com", "*.example.org", "none"}, {"*.example.com", "*.example.com", "*.example.com"},
		{"", "*.example.com", "*.example.com"},
	} {
		for _, pair := range [][2]string{{c[0], c[1]}, {c[1], c[0]}} {
			got, ok := intersect(pair[0], pair[1])
			if !ok {
				got = "none"
			}
			if got != c[2] {
				t.Errorf("%q and %q have %q in common, and not %q", pair[0], pair[1], got, c[2])
			}
		}
	}
}

// TestStatusKeepsOthers holds that statuses of other controllers, and the times of changes, stay.
func TestStatusKeepsOthers(t *testing.T) {
	long := metav1.NewTime(time.Unix(100, 0))
	r := &attachedRoute{routeObject: &routeObject{Object: &gw.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Generation: 2}}, status: &gw.RouteStatus{Parents: []gw.RouteParentStatus{
		{ControllerName: "another", ParentRef: gw.ParentReference{Name: "theirs"}},
		{ControllerName: Controller, ParentRef: gw.ParentReference{Name: "gone"}},
		{ControllerName: Controller, ParentRef: gw.ParentReference{Name: "a"}, Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", LastTransitionTime: long}, {Type: "ResolvedRefs", Status: "True", LastTransitionTime: long}}},
	}}}}
	r.parents = []parentVerdict{{ref: gw.ParentReference{Name: "a"}, references: verdict{"BackendNotFound", "none"}}}
	got := routeStatus(r, time.Unix(200, 0)).Parents
	if len(got) != 2 || got[0].ParentRef.Name != "theirs" || got[1].ParentRef.Name != "a" {
		t.Fatalf("parents: %+v", got)
	}
	accepted, resolved := got[1].Conditions[0], got[1].Conditions[1]
	if !accepted.LastTransitionTime.Equal(&long) || accepted.ObservedGeneration != 2 {
		t.Errorf("what has not changed has another time: %+v", accepted)
	}
	if resolved.LastTransitionTime.Unix() != 200 || resolved.Status != metav1.ConditionFalse || resolved.Reason != "BackendNotFound" {
		t.Errorf("what has changed: %+v", resolved)
	}
}

// TestConflicts: which listeners lose their port is what comes of comparing each with all others, in less time: a namespace that may make
// ListenerSets may make many.
func TestConflicts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	protocols := []gw.ProtocolType{gw.HTTPProtocolType, gw.HTTPSProtocolType, gw.TLSProtocolType, gw.TCPProtocolType, gw.UDPProtocolType}
	hosts := []gw.Hostname{"", "a.example.com", "*.example.com"}
	for range 2000 {
		g, sets := &gateway{Gateway: &gw.Gateway{}}, []*listenerSet{nil, nil, {}, {}}
		var list, copies []*listener
		for i := range 1 + random.IntN(8) {
			l := listener{gateway: g, set: sets[min(i/2, 3)], Listener: &gw.Listener{
				Name: gw.SectionName(fmt.Sprint("l", i)), Port: gw.PortNumber(80 + random.IntN(2)),
				Protocol: protocols[random.IntN(len(protocols))], Hostname: &hosts[random.IntN(len(hosts))],
			}}
			if kindsOf(l.Protocol) == nil {
				l.refused = verdict{"UnsupportedProtocol", ""}
			}
			other := l
			list, copies = append(list, &l), append(copies, &other)
		}
		findConflicts(list)
		for i, a := range copies {
			for _, b := range copies[:i] {
				if why := conflict(a, b); a.conflicted.isGood() {
					a.conflicted = why
				}
				if why := conflict(b, a); b.set == a.set && b.conflicted.isGood() {
					b.conflicted = why
				}
			}
		}
		for i, l := range list {
			if l.conflicted != copies[i].conflicted {
				t.Fatalf("%s: %v, want %v", l.Name, l.conflicted, copies[i].conflicted)
			}
		}
	}
	many := make([]*listener, 100_000) // comparing them all would take an hour
	for i := range many {
		many[i] = &listener{set: &listenerSet{}, Listener: &gw.Listener{Port: 443, Protocol: gw.HTTPSProtocolType, Hostname: new(gw.Hostname(fmt.Sprint(i)))}}
	}
	findConflicts(many)
	for _, l := range many {
		if !l.conflicted.isGood() {
			t.Fatal(l.conflicted)
		}
	}
}

// TestRulesOfAListenerAreBounded: a listener that has all the rules it may have takes no more routes.
func TestRulesOfAListenerAreBounded(t *testing.T) {
	w := parse(t, `{kind: Gateway, metadata: {name: a}, spec: {gatewayClassName: proa, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{kind: HTTPRoute, metadata: {name: first}, spec: {parentRefs: [{name: a}], rules: [{}]}}
---
{kind: HTTPRoute, metadata: {name: late}, spec: {parentRefs: [{name: a}], rules: [{}]}}`)
	w.http[0].Spec.Rules[0].Matches = make([]gw.HTTPRouteMatch, maxRules)
	p := decide(w)
	if n := len(p.gateways[0].listeners[0].rules); n != maxRules {
		t.Errorf("%d rules, want %d", n, maxRules)
	}
	if got := p.routes[1].parents[0].accepted.reason; got != string(gw.RouteReasonUnsupportedValue) {
		t.Errorf("the late one: %q", got)
	}
}
