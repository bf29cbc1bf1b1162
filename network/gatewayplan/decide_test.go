package gatewayplan

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
	"proa.dev/network/httpproxy"
	"proa.dev/network/proxysync"
)

// base holds objects that every case has: the GatewayClass of proa, and Services in two namespaces.
const base = `{kind: GatewayClass, metadata: {name: proa}, spec: {controllerName: proa.dev/gateway}}
---
{kind: Service, metadata: {name: web}, spec: {ports: [{port: 80}]}}
---
{kind: Service, metadata: {name: web, namespace: other}, spec: {ports: [{port: 80}]}}
---
`

// parseWorld reads a World from YAML. The namespace of objects is default unless they have one, and each is a second younger than the
// one before.
func parseWorld(t *testing.T, text string) *World {
	t.Helper()
	namespaces, services := map[string]map[string]string{}, map[key]*corev1.Service{}
	secrets, maps := map[key]*corev1.Secret{}, map[key]*corev1.ConfigMap{}
	w := &World{
		NamespaceLabels: func(n string) map[string]string { return namespaces[n] },
		Service:         func(k key) *corev1.Service { return services[k] },
		Secret:          func(k key) *corev1.Secret { return secrets[k] }, ConfigMap: func(k key) *corev1.ConfigMap { return maps[k] },
		Certificate: func(s *corev1.Secret) (*httpproxy.Certificate, error) {
			if len(s.StringData) == 0 {
				return nil, errors.New("it needs tls.crt and tls.key")
			}
			return &httpproxy.Certificate{}, nil
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
			w.Classes = append(w.Classes, &gw.GatewayClass{})
			read(doc, w.Classes[len(w.Classes)-1])
		case kindGateway:
			w.Gateways = append(w.Gateways, &gw.Gateway{})
			read(doc, w.Gateways[len(w.Gateways)-1])
		case kindListenerSet:
			w.ListenerSets = append(w.ListenerSets, &gw.ListenerSet{})
			read(doc, w.ListenerSets[len(w.ListenerSets)-1])
		case kindHTTPRoute:
			w.HTTPRoutes = append(w.HTTPRoutes, &gw.HTTPRoute{})
			read(doc, w.HTTPRoutes[len(w.HTTPRoutes)-1])
		case kindGRPCRoute:
			w.GRPCRoutes = append(w.GRPCRoutes, &gw.GRPCRoute{})
			read(doc, w.GRPCRoutes[len(w.GRPCRoutes)-1])
		case kindTLSRoute:
			w.TLSRoutes = append(w.TLSRoutes, &gw.TLSRoute{})
			read(doc, w.TLSRoutes[len(w.TLSRoutes)-1])
		case "ReferenceGrant":
			w.Grants = append(w.Grants, &gw.ReferenceGrant{})
			read(doc, w.Grants[len(w.Grants)-1])
		case "BackendTLSPolicy":
			w.Policies = append(w.Policies, &gw.BackendTLSPolicy{})
			read(doc, w.Policies[len(w.Policies)-1])
		case "Namespace":
			n := &corev1.Namespace{}
			read(doc, n)
			namespaces[n.Name] = n.Labels
		case kindService:
			s := &corev1.Service{}
			read(doc, s)
			services[proxysync.KeyOf(s)] = s
		case kindSecret:
			s := &corev1.Secret{}
			read(doc, s)
			secrets[proxysync.KeyOf(s)] = s
		case kindConfigMap:
			m := &corev1.ConfigMap{}
			read(doc, m)
			maps[proxysync.KeyOf(m)] = m
		default:
			t.Fatalf("unknown kind %s", what.Kind)
		}
	}
	return w
}

// TestDecide checks the plans of the worlds in testdata/plans.
func TestDecide(t *testing.T) {
	textcase.Decide(t, "testdata/plans/*.txt", "=>", func(t *testing.T, in string) string {
		t.Helper()
		return describe(Decide(parseWorld(t, in)))
	})
}

// describe returns a plan as a text: listeners with their rules, then routes and policies, each with its problems.
func describe(p *Plan) string {
	var b strings.Builder
	for _, g := range p.Gateways {
		fmt.Fprintf(&b, "Gateway %s%s\n", g.Name, problemText("refused", g.refused)+problemText("references", g.badReference))
		for _, l := range g.listeners {
			fmt.Fprintf(&b, "  %s: serves %t, %d attached%s\n", l.Name, l.isServing(), l.attached,
				problemText("refused", l.refused)+problemText("conflicted", l.conflicted)+problemText("references", l.badReference))
			for _, r := range l.rules {
				fmt.Fprintf(&b, "    %s\n", ruleText(&r))
			}
		}
	}
	for _, r := range p.Routes {
		for _, parent := range r.parents {
			fmt.Fprintf(&b, "%s %s at %s%s\n", r.Kind, r.GetName(), parent.ref.Name,
				problemText("refused", parent.rejected)+problemText("references", parent.badReference))
		}
	}
	for _, s := range p.ListenerSets {
		fmt.Fprintf(&b, "ListenerSet %s%s\n", s.Name, problemText("refused", s.refused))
	}
	for _, x := range p.Policies {
		fmt.Fprintf(&b, "policy %s of %d Gateways%s\n", x.Name, len(x.gateways),
			problemText("refused", x.refused())+problemText("references", x.badReference))
	}
	return b.String()
}

// problemText formats a problem, or returns nothing if there is none.
func problemText(what string, v Problem) string {
	if v.IsZero() {
		return ""
	}
	return fmt.Sprintf("; %s: %s (%s)", what, v.Reason, v.Message)
}

func ruleText(r *httpproxy.Rule) string {
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

// TestIntersect checks which names a listener and a route have in common, in both orders.
func TestIntersect(t *testing.T) {
	for _, c := range [][3]string{
		{"", "a.example.com", "a.example.com"}, {"a.example.com", "a.example.com", "a.example.com"},
		{"*.example.com", "a.example.com", "a.example.com"},
		{"*.example.com", "a.b.example.com", "a.b.example.com"}, {"*.example.com", "*.b.example.com", "*.b.example.com"},
		{"*.example.com", "example.com", "none"},
		{"*.example.com", "badexample.com", "none"}, {"a.example.com", "b.example.com", "none"}, {"*.example.com", "*.example.org", "none"},
		{"*.example.com", "*.example.com", "*.example.com"},
		{"", "*.example.com", "*.example.com"},
	} {
		for _, pair := range [][2]string{{c[0], c[1]}, {c[1], c[0]}} {
			got, ok := intersect(pair[0], pair[1])
			if !ok {
				got = "none"
			}
			if got != c[2] {
				t.Errorf("%q and %q have %q in common, want %q", pair[0], pair[1], got, c[2])
			}
		}
	}
}

// TestRouteStatusKeepsStatusOfOtherControllers checks that statuses of other controllers, and the times of unchanged conditions, stay.
func TestRouteStatusKeepsStatusOfOtherControllers(t *testing.T) {
	unchanged := metav1.NewTime(time.Unix(100, 0))
	r := &Route{routeObject: &routeObject{Object: &gw.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Generation: 2}},
		status: &gw.RouteStatus{Parents: []gw.RouteParentStatus{
			{ControllerName: "another", ParentRef: gw.ParentReference{Name: "theirs"}},
			{ControllerName: Controller, ParentRef: gw.ParentReference{Name: "gone"}},
			{ControllerName: Controller, ParentRef: gw.ParentReference{Name: "a"},
				Conditions: []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", LastTransitionTime: unchanged},
					{Type: "ResolvedRefs", Status: "True", LastTransitionTime: unchanged}}},
		}}}}
	r.parents = []parentProblems{{ref: gw.ParentReference{Name: "a"}, badReference: Problem{"BackendNotFound", "none"}}}
	got := RouteStatus(r, time.Unix(200, 0)).Parents
	if len(got) != 2 || got[0].ParentRef.Name != "theirs" || got[1].ParentRef.Name != "a" {
		t.Fatalf("parents: %+v", got)
	}
	accepted, resolved := got[1].Conditions[0], got[1].Conditions[1]
	if !accepted.LastTransitionTime.Equal(&unchanged) || accepted.ObservedGeneration != 2 {
		t.Errorf("an unchanged condition has a new time: %+v", accepted)
	}
	if resolved.LastTransitionTime.Unix() != 200 || resolved.Status != metav1.ConditionFalse || resolved.Reason != "BackendNotFound" {
		t.Errorf("the changed condition: %+v", resolved)
	}
}

// TestConflicts checks that findConflicts gives the same result as comparing each listener with all others, but in less
// time, since users may create many ListenerSets.
func TestConflicts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	protocols := []gw.ProtocolType{gw.HTTPProtocolType, gw.HTTPSProtocolType, gw.TLSProtocolType, gw.TCPProtocolType, gw.UDPProtocolType}
	hosts := []gw.Hostname{"", "a.example.com", "*.example.com"}
	for range 2000 {
		g, sets := &Gateway{Gateway: &gw.Gateway{}}, []*ListenerSet{nil, nil, {}, {}}
		var list, copies []*listener
		for i := range 1 + random.IntN(8) {
			l := listener{gateway: g, set: sets[min(i/2, 3)], Listener: &gw.Listener{
				Name: gw.SectionName(fmt.Sprint("l", i)), Port: gw.PortNumber(80 + random.IntN(2)),
				Protocol: protocols[random.IntN(len(protocols))], Hostname: &hosts[random.IntN(len(hosts))],
			}}
			if kindsOf(l.Protocol) == nil {
				l.refused = Problem{"UnsupportedProtocol", ""}
			}
			other := l
			list, copies = append(list, &l), append(copies, &other)
		}
		findConflicts(list)
		for i, a := range copies {
			for _, b := range copies[:i] {
				if problem := conflict(a, b); a.conflicted.IsZero() {
					a.conflicted = problem
				}
				if problem := conflict(b, a); b.set == a.set && b.conflicted.IsZero() {
					b.conflicted = problem
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
		many[i] = &listener{set: &ListenerSet{},
			Listener: &gw.Listener{Port: 443, Protocol: gw.HTTPSProtocolType, Hostname: new(gw.Hostname(fmt.Sprint(i)))}}
	}
	findConflicts(many)
	for _, l := range many {
		if !l.conflicted.IsZero() {
			t.Fatal(l.conflicted)
		}
	}
}

// TestRulesOfAListenerAreBounded checks that a listener with the maximum number of rules accepts no more routes.
func TestRulesOfAListenerAreBounded(t *testing.T) {
	w := parseWorld(t, `{kind: Gateway, metadata: {name: a}, spec: {gatewayClassName: proa, listeners: [{name: http, port: 80, protocol: HTTP}]}}
---
{kind: HTTPRoute, metadata: {name: first}, spec: {parentRefs: [{name: a}], rules: [{}]}}
---
{kind: HTTPRoute, metadata: {name: late}, spec: {parentRefs: [{name: a}], rules: [{}]}}`)
	w.HTTPRoutes[0].Spec.Rules[0].Matches = make([]gw.HTTPRouteMatch, maxRules)
	p := Decide(w)
	if n := len(p.Gateways[0].listeners[0].rules); n != maxRules {
		t.Errorf("%d rules, want %d", n, maxRules)
	}
	if got := p.Routes[1].parents[0].rejected.Reason; got != string(gw.RouteReasonUnsupportedValue) {
		t.Errorf("the last route: %q", got)
	}
}
