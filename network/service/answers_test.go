package service

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/hop"
	"proa.dev/network/firstanswer"
	"proa.dev/network/nettest"
)

// podSlice returns an EndpointSlice with TCP and UDP ports. Endpoints are words: address, node, Pod, and "unready" or nothing.
func podSlice(endpoints ...string) *discoveryv1.EndpointSlice {
	s := endpointSlice("s-x", 2)
	for _, p := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Port: new(int32(80)), Protocol: &p})
	}
	for _, text := range endpoints {
		words := strings.Fields(text)
		e := discoveryv1.Endpoint{Addresses: words[:1], NodeName: &words[1]}
		e.Conditions.Ready = new(len(words) < 4)
		if words[2] != "-" {
			e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Name: words[2], UID: types.UID("u-" + words[2])}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func TestWhichEndpointsAreNew(t *testing.T) {
	for _, c := range []struct {
		name        string
		before, now *discoveryv1.EndpointSlice
		want        string
	}{
		{"a new slice", nil, podSlice("10.0.0.1 here a", "10.0.0.2 here b"), "a 10.0.0.1:80 6, a 10.0.0.1:80 17, b 10.0.0.2:80 6, b 10.0.0.2:80 17"},
		{"another node", nil, podSlice("10.0.0.1 there a"), ""},
		{"not ready", nil, podSlice("10.0.0.1 here a unready"), ""},
		{"becomes ready", podSlice("10.0.0.1 here a unready"), podSlice("10.0.0.1 here a"), "a 10.0.0.1:80 6, a 10.0.0.1:80 17"},
		{"ready before", podSlice("10.0.0.1 here a"), podSlice("10.0.0.1 here a"), ""},
		{"no Pod", nil, podSlice("10.0.0.1 here -"), ""},
		{"a Pod of another namespace", nil, podSlice("10.0.0.1 here foreign"), ""},
		{"the address of another Pod", nil, podSlice("10.0.0.66 here a"), ""},
		{"not an address of a Pod", nil, podSlice("127.0.0.1 here a"), ""},
	} {
		var got []string
		tr := &tracer{node: "here", hasPod: func(uid types.UID, namespace string, addr netip.Addr) bool {
			return namespace == "d" && uid != "u-foreign" && addr != netip.MustParseAddr("10.0.0.66")
		}}
		found := tr.newEndpoints(c.now, c.before)
		for _, pod := range slices.Sorted(maps.Keys(found)) {
			for _, e := range found[pod] {
				got = append(got, fmt.Sprint(pod, " ", e.Addr, " ", e.Protocol))
			}
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestFirstAnswers asks Pods through Services, over TCP and UDP, IPv4 and IPv6, from a Pod and from the node.
func TestFirstAnswers(t *testing.T) {
	n := newNode(t)
	n.stop()
	var mu sync.Mutex
	var got []string
	answers := firstanswer.New(firstanswer.Config{Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Record: func(r hop.Record) {
		mu.Lock()
		defer mu.Unlock()
		took := r.Took[hop.Network]
		if r.Verb != hop.Answer || r.User != "system:node:here" || r.Rev == 0 || took < 0 || took.Seconds() > 10 {
			t.Errorf("%+v", r)
		}
		got = append(got, r.Name+" "+r.Steps[0].Name+" "+r.Steps[0].Detail)
	}})
	running := make(chan struct{})
	go func() { defer close(running); answers.Run(t.Context()) }()
	t.Cleanup(func() { <-running })
	n.startWith(Config{
		NodeName: "here", Services: n.services, Slices: n.slices, Nodes: n.nodes, ClusterCIDRs: clusterCIDRs, ServiceCIDRs: serviceCIDRs,
		Table: "proa-test-services", Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Record: func(hop.Record) {},
		Expect: answers.Expect,
	})
	records := func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(got, "\n")
	}
	a, client := n.addBackend("a"), n.addBackend("client")
	for i, c := range []struct {
		protocol, vip, address string
		from                   *nettest.NS
	}{
		{"TCP", "10.96.0.10", a.v4, client.NS},
		{"UDP", "10.96.0.11", a.v4, client.NS},
		{"TCP", "fd00:96::12", a.v6, client.NS},
		{"UDP", "fd00:96::13", a.v6, n.host},
		{"TCP", "10.96.0.14", a.v4, n.host},
		{"TCP", "10.96.0.15", a.v4, n.outside},
	} {
		mu.Lock()
		got = nil
		mu.Unlock()
		name := "s" + regexp.MustCompile(`\W`).ReplaceAllString(c.vip, "-")
		low, at := strings.ToLower(c.protocol), nettest.At(c.vip, 8080)
		with := strings.ReplaceAll(slice(name, name, 80, c.protocol, c.address+" here"), "  conditions:", "  targetRef: {kind: Pod, name: a}\n  conditions:")
		with = strings.Replace(with, "metadata: {", fmt.Sprintf("metadata: {uid: u-%s, resourceVersion: %q, ", name, fmt.Sprint(i+1)), 1)
		n.apply(fmt.Sprintf("kind: Service\nmetadata: {name: %s}\nspec: {clusterIP: %q, clusterIPs: [%q], ports: [{port: 8080, protocol: %s}]}\n---\n%s",
			name, c.vip, c.vip, c.protocol, with))
		// The node's own connection to the Pod is taken for a probe.
		n.eventually("probe", func() string { return strings.Fields(n.host.Ask(low, nettest.At(c.address, 80)) + " ")[0] }, "a")
		if records() != "" {
			t.Fatalf("the node itself counts as a client: %s", records())
		}
		// The kernel reports connections only while somebody listens, which may begin after the first answer.
		n.eventually(c.vip+" "+low, func() string {
			if answer := strings.Fields(c.from.Ask(low, at) + " ")[0]; answer != "a" {
				return "answered by " + answer
			}
			return records()
		}, name+" a through "+at)
	}
}
