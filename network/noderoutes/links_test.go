package noderoutes

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core/nodekind"
	"proa.dev/network/nettest"
)

// TestBothNodesChooseTheSameRoute checks both nodes of a pair with the links that each publishes: both use a route, or
// both a tunnel.
func TestBothNodesChooseTheSameRoute(t *testing.T) {
	with := func(n node, links string) node {
		n.published = true
		for _, s := range strings.Fields(links) {
			n.links = append(n.links, netip.MustParsePrefix(s))
		}
		return n
	}
	for _, c := range []struct {
		name string
		a, b node
		want string
	}{
		{"on one link", with(newNode("a", "10.244.1.0/24", "192.0.2.1"), "192.0.2.0/24"),
			with(newNode("b", "10.244.2.0/24", "192.0.2.2"), "192.0.2.0/24"), "via via"},
		{"on the second interface of a", with(newNode("a", "10.244.1.0/24", "192.0.2.1"), "192.0.2.0/24 198.51.100.0/24"),
			with(newNode("b", "10.244.2.0/24", "198.51.100.2"), "198.51.100.0/24"), "tunnel tunnel"},
		{"b wants tunnels", with(newNode("a", "10.244.1.0/24", "192.0.2.1"), "192.0.2.0/24"),
			with(newNode("b", "10.244.2.0/24", "192.0.2.2"), ""), "tunnel tunnel"},
		{"b has no address of the family", with(newNode("a", "fd00:1::/64", "192.0.2.1 2001:db8::1"), "192.0.2.0/24 2001:db8::/64"),
			with(newNode("b", "fd00:2::/64", "192.0.2.2"), "192.0.2.0/24 2001:db8::/64"), "tunnel tunnel"},
	} {
		var got []string
		for _, self := range []string{"a", "b"} {
			w := decide(question{self: self, nodes: []node{c.a, c.b}, onLink: func(netip.Addr) bool { return true },
				limits: limits{pods: clusterNetworks()}})
			got = append(got, strings.Fields(describe(w)[0])[1])
		}
		nettest.Same(t, c.name, strings.Join(got, " "), c.want)
	}
}

// TestSecondInterface has a node with two interfaces and a node that is connected to the second: Pods reach each other.
func TestSecondInterface(t *testing.T) {
	nodes, a, b := twoInterfaces(t, true)
	eventually(t, "from the second interface", func() string { return b.pod.Ask("tcp", nettest.At(a.podAddr[4], 80)) },
		"pod1 "+b.podAddr[4])
	eventually(t, "to the second interface", func() string { return a.pod.Ask("tcp", nettest.At(b.podAddr[4], 80)) }, "pod2 "+a.podAddr[4])
	annotation := func(node, name string) string {
		o, _ := nodes.Get("", node)
		text, there := o.GetAnnotations()[name]
		return fmt.Sprint(text, there)
	}
	eventually(t, "the links that the first node publishes", func() string { return annotation("n1", nodekind.OnLinkAnnotation) },
		"192.0.2.0/24,198.51.100.0/24true")
	for _, n := range []string{"n1", "n2"} {
		eventually(t, "probes of "+n, func() string { return annotation(n, nodekind.UnreachableAnnotation) }, "true")
	}
}

// TestUnreachableNodesArePublished has two nodes whose tunnels use different ports: each publishes that it does not
// reach the other.
func TestUnreachableNodesArePublished(t *testing.T) {
	nodes, _, _ := twoInterfaces(t, false)
	for n, want := range map[string]string{"n1": "n2", "n2": "n1"} {
		eventually(t, "probes of "+n, func() string {
			o, _ := nodes.Get("", n)
			return o.GetAnnotations()[nodekind.UnreachableAnnotation]
		}, want)
	}
}

// twoInterfaces creates two nodes, of which the first has two interfaces. Unless linked, they publish no networks and
// their tunnels use different ports.
func twoInterfaces(t *testing.T, linked bool) (*nettest.View, *testNode, *testNode) {
	t.Helper()
	nettest.Need(t)
	a, b := newTestNode(t, 1), newTestNode(t, 2)
	nettest.Wire(t, nettest.End{NS: a.ns, Name: "eth0", Addrs: []string{"192.0.2.1/24"}},
		nettest.End{NS: nettest.New(t), Name: "eth0", Addrs: []string{"192.0.2.9/24"}})
	nettest.Wire(t, nettest.End{NS: a.ns, Name: "eth1", Addrs: []string{"198.51.100.1/24"}},
		nettest.End{NS: b.ns, Name: "eth0", Addrs: []string{"198.51.100.2/24"}, Via: []string{"198.51.100.1"}})
	nodes := nettest.NewView()
	for _, o := range nettest.Objects(t, nodeObject(1, "192.0.2.1")+"\n---\n"+nodeObject(2, "198.51.100.2")) {
		n := o.(*corev1.Node)
		n.Spec.PodCIDRs = n.Spec.PodCIDRs[:1] // IPv6 networks would need a tunnel in any case
		nodes.Put(n)
	}
	var mu sync.Mutex // serializes updates of Nodes
	for i, p := range map[int]*testNode{1: a, 2: b} {
		name, port := fmt.Sprint("n", i), 8472
		if !linked {
			port += i
		}
		p.runMeshWith(t, Config{
			Port: port, NodeName: name, Nodes: nodes, Networks: clusterNetworks(), ProbeEvery: 50 * time.Millisecond,
			Dial: func(ctx context.Context, d *net.Dialer, addr string) (c net.Conn, err error) {
				p.ns.Do(func() { c, err = d.DialContext(ctx, "tcp", addr) })
				return c, err
			},
			Publish: func(_ context.Context, annotation, value string) error {
				if annotation == nodekind.OnLinkAnnotation && !linked {
					value = ""
				}
				mu.Lock()
				defer mu.Unlock()
				o, _ := nodes.Get("", name)
				next := o.(*corev1.Node).DeepCopy()
				if next.Annotations == nil {
					next.Annotations = map[string]string{}
				}
				next.Annotations[annotation] = value
				nodes.Put(next)
				return nil
			},
		})
	}
	return nodes, a, b
}
