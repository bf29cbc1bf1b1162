package noderoutes

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proa.dev/network/interfaces"
	"proa.dev/network/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// newNode returns a node with networks and addresses, which are separated by spaces.
func newNode(name, networks, addrs string) node {
	n := node{name: name}
	for _, s := range strings.Fields(networks) {
		n.networks = append(n.networks, netip.MustParsePrefix(s))
	}
	for _, s := range strings.Fields(addrs) {
		n.addrs = append(n.addrs, netip.MustParseAddr(s))
	}
	return n
}

func TestDecide(t *testing.T) {
	link := func(list ...string) func(netip.Addr) bool {
		return func(a netip.Addr) bool {
			return slices.ContainsFunc(list, func(s string) bool { return netip.MustParsePrefix(s).Contains(a) })
		}
	}
	self := newNode("b", "10.244.2.0/24 fd00:2::/64", "192.0.2.2 2001:db8::2")
	for _, c := range []struct {
		name   string
		others []node
		onLink func(netip.Addr) bool
		want   string
	}{
		{"on the link", []node{newNode("a", "10.244.1.0/24 fd00:1::/64", "192.0.2.1 2001:db8::1")}, link("192.0.2.0/24", "2001:db8::/64"),
			"10.244.1.0/24 via 192.0.2.1, fd00:1::/64 via 2001:db8::1"},
		{"behind a router", []node{newNode("a", "10.244.1.0/24 fd00:1::/64", "198.51.100.1")}, link("192.0.2.0/24"),
			"10.244.1.0/24 tunnel 10.244.1.0, fd00:1::/64 tunnel fd00:1::, end 0a:59:ca:97:81:12 198.51.100.1 [10.244.1.0 fd00:1::]"},
		{"one family on the link", []node{newNode("a", "10.244.1.0/24 fd00:1::/64", "192.0.2.1")}, link("192.0.2.0/24"),
			"10.244.1.0/24 via 192.0.2.1, fd00:1::/64 tunnel fd00:1::, end 0a:59:ca:97:81:12 192.0.2.1 [fd00:1::]"},
		{"no address yet, no network yet", []node{newNode("a", "10.244.1.0/24", ""), newNode("c", "", "192.0.2.3")}, link("192.0.2.0/24"), ""},
	} {
		w := decide(question{self: "b", nodes: append(c.others, self), onLink: c.onLink, limits: limits{pods: clusterNetworks()}})
		nettest.Same(t, c.name, strings.Join(describe(w), ", "), c.want)
	}
}

// clusterNetworks returns the networks of all Pods in these tests.
func clusterNetworks() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00::/16")}
}

// describe returns the lines that describe a decision.
func describe(w wanted) (got []string) {
	for _, x := range w.ways {
		how := "via"
		if x.tunnel {
			how = "tunnel"
		}
		got = append(got, fmt.Sprintf("%s %s %s", x.to, how, x.via))
	}
	for _, e := range w.ends {
		got = append(got, fmt.Sprintf("end %s %s %s", e.mac, e.outside, e.inside))
	}
	for _, r := range w.refused {
		got = append(got, fmt.Sprintf("%s: not %s", r.node, r.text))
	}
	return got
}

// testNode is a node in its own network namespace, with a Pod in another.
type testNode struct {
	ns, pod *nettest.NS
	podAddr map[int]string
}

func newTestNode(t *testing.T, i int) *testNode {
	p := &testNode{ns: nettest.New(t), pod: nettest.New(t),
		podAddr: map[int]string{4: fmt.Sprintf("10.244.%d.2", i), 6: fmt.Sprintf("fd00:244:%d::2", i)}}
	gw4, gw6 := fmt.Sprintf("10.244.%d.1", i), fmt.Sprintf("fd00:244:%d::1", i)
	nettest.Wire(t, nettest.End{NS: p.ns, Name: "pod0", Addrs: []string{gw4 + "/24", gw6 + "/64"}},
		nettest.End{NS: p.pod, Name: "eth0", Addrs: []string{p.podAddr[4] + "/24", p.podAddr[6] + "/64"}, Via: []string{gw4, gw6}})
	p.ns.Do(func() { enableForwarding(t) })
	p.pod.Listen("tcp", ":80", fmt.Sprint("pod", i))
	return p
}

func nodeObject(i int, addr string) string {
	return fmt.Sprintf("kind: Node\nmetadata: {name: n%d}\nspec: {podCIDRs: [10.244.%d.0/24, \"fd00:244:%d::/64\"]}\nstatus: {addresses: [{type: InternalIP, address: %q}]}\n", i, i, i, addr)
}

func (p *testNode) runMesh(t *testing.T, i int, nodes *nettest.View, mode Mode) {
	t.Helper()
	p.runMeshWith(t, Config{NodeName: fmt.Sprint("n", i), Nodes: nodes, Mode: mode, Networks: clusterNetworks()})
}

// runMeshWith runs the mesh of the node until the test ends.
func (p *testNode) runMeshWith(t *testing.T, c Config) {
	t.Helper()
	var m *Mesh
	var err error
	p.ns.Do(func() { m, err = New(c) })
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		p.ns.Do(func() {
			for range 2 {
				if err := Purge(c); err != nil {
					t.Error(err)
				}
			}
			if routes, _ := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: 80},
				netlink.RT_FILTER_PROTOCOL); len(routes) != 0 {
				t.Errorf("routes are left: %v", routes)
			}
			if _, err := netlink.LinkByName("proa-vxlan"); !interfaces.IsNotFound(err) {
				t.Error("the tunnel is left")
			}
		})
	})
}

func eventually(t *testing.T, what string, ask func() string, want string) {
	t.Helper()
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = ask(); got == want {
			return
		}
	}
	t.Errorf("%s: got %q, want %q", what, got, want)
}

func TestTwoNodes(t *testing.T) {
	nettest.Need(t)
	type links struct{ a, b, routerA, routerB string } // addresses; without routers both nodes are on one network
	four, four2 := links{a: "192.0.2.1/24", b: "192.0.2.2/24"}, links{"192.0.2.1/24", "198.51.100.2/24", "192.0.2.254/24",
		"198.51.100.254/24"}
	six, six2 := links{a: "2001:db8:1::1/64", b: "2001:db8:1::2/64"}, links{"2001:db8:1::1/64", "2001:db8:2::2/64", "2001:db8:1::fe/64",
		"2001:db8:2::fe/64"}
	for _, c := range []struct {
		name string
		mode Mode
		links
	}{
		{"on one link", Auto, four}, {"with tunnels on one link", Tunnels, four}, {"with a router between", Auto, four2},
		{"on one link of IPv6", Auto, six}, {"with a router of IPv6 between", Auto, six2},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newTestNode(t, 1), newTestNode(t, 2)
			addrA, addrB := addressOf(c.a), addressOf(c.b)
			if c.routerA != "" {
				router := nettest.New(t)
				nettest.Wire(t, nettest.End{NS: a.ns, Name: "eth0", Addrs: []string{c.a}},
					nettest.End{NS: router, Name: "r1", Addrs: []string{c.routerA}})
				nettest.Wire(t, nettest.End{NS: b.ns, Name: "eth0", Addrs: []string{c.b}},
					nettest.End{NS: router, Name: "r2", Addrs: []string{c.routerB}})
				a.ns.Do(func() { defaultRoute(t, addressOf(c.routerA)) })
				b.ns.Do(func() { defaultRoute(t, addressOf(c.routerB)) })
				router.Do(func() { enableForwarding(t) })
			} else {
				nettest.Wire(t, nettest.End{NS: a.ns, Name: "eth0", Addrs: []string{c.a}},
					nettest.End{NS: b.ns, Name: "eth0", Addrs: []string{c.b}})
			}
			nodes := nettest.NewView()
			for _, o := range nettest.Objects(t, nodeObject(1, addrA)+"\n---\n"+nodeObject(2, addrB)) {
				nodes.Put(o)
			}
			a.runMesh(t, 1, nodes, c.mode)
			b.runMesh(t, 2, nodes, c.mode)
			for _, f := range []int{4, 6} {
				eventually(t, "from a to b", func() string { return a.pod.Ask("tcp", nettest.At(b.podAddr[f], 80)) }, "pod2 "+a.podAddr[f])
				eventually(t, "from b to a", func() string { return b.pod.Ask("tcp", nettest.At(a.podAddr[f], 80)) }, "pod1 "+b.podAddr[f])
			}
			eventually(t, "from the node", func() string { return strings.Fields(a.ns.Ask("tcp", nettest.At(b.podAddr[4], 80)))[0] },
				"pod2")
			// The routes of a deleted Node are removed.
			nodes.Remove("", "n2")
			eventually(t, "routes of a deleted node", func() string {
				var list []string
				a.ns.Do(func() {
					routes, _ := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: 80}, netlink.RT_FILTER_PROTOCOL)
					for _, r := range routes {
						list = append(list, r.Dst.String())
					}
				})
				return strings.Join(list, " ")
			}, "")
		})
	}
}

// enableForwarding enables forwarding in the namespace.
func enableForwarding(t *testing.T) {
	for _, f := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+f, []byte("1"), 0); err != nil {
			t.Error(err)
		}
	}
}

// addressOf returns the address of a text such as 192.0.2.1/24.
func addressOf(s string) string { return netip.MustParsePrefix(s).Addr().String() }

func defaultRoute(t *testing.T, via string) {
	if err := netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(via)}); err != nil {
		t.Error(err)
	}
}

// TestTunnelDropsPacketsOfOtherMachines sends into the tunnel from a machine that is no node: its packets would be taken for those of a
// Pod.
func TestTunnelDropsPacketsOfOtherMachines(t *testing.T) {
	nettest.Need(t)
	a, b := newTestNode(t, 1), newTestNode(t, 2)
	nettest.Wire(t, nettest.End{NS: a.ns, Name: "eth0", Addrs: []string{"192.0.2.1/24"}},
		nettest.End{NS: b.ns, Name: "eth0", Addrs: []string{"192.0.2.2/24"}})
	known, all := nettest.NewView(), nettest.NewView()
	for _, o := range nettest.Objects(t, nodeObject(1, "192.0.2.1")+"\n---\n"+nodeObject(2, "192.0.2.2")) {
		all.Put(o)
		known.Put(o)
	}
	a.runMesh(t, 1, known, Tunnels)
	b.runMesh(t, 2, all, Tunnels)
	eventually(t, "a node", func() string { return b.pod.Ask("tcp", nettest.At(a.podAddr[4], 80)) }, "pod1 "+b.podAddr[4])

	var listener net.PacketConn
	var err error
	a.pod.Do(func() { listener, err = net.ListenPacket("udp", ":9") })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	arrives := func() bool {
		c, err := b.pod.Dial("udp", nettest.At(a.podAddr[4], 9))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = c.Write([]byte("x"))
		_ = listener.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		_, _, err = listener.ReadFrom(make([]byte, 1))
		return err == nil
	}
	eventually(t, "packets of a node arrive", func() string { return fmt.Sprint(arrives()) }, "true")
	// The Node object of the second now has another address, so its old address is not the address of a node.
	for _, o := range nettest.Objects(t, nodeObject(2, "192.0.2.77")) {
		known.Put(o)
	}
	eventually(t, "packets of another machine arrive", func() string { return fmt.Sprint(arrives()) }, "false")
}

// TestPurgeKeepsRoutesOfOtherClusters checks that routes of another cluster stay, even if they have the same protocol number.
func TestPurgeKeepsRoutesOfOtherClusters(t *testing.T) {
	nettest.Need(t)
	p := nettest.New(t)
	nettest.Wire(t, nettest.End{NS: p, Name: "eth0", Addrs: []string{"192.0.2.1/24"}},
		nettest.End{NS: nettest.New(t), Name: "eth0", Addrs: []string{"192.0.2.2/24"}})
	p.Do(func() {
		for _, to := range []string{"10.244.1.0/24", "10.99.1.0/24"} {
			r := &netlink.Route{Dst: interfaces.IPNet(netip.MustParsePrefix(to)), Gw: net.ParseIP("192.0.2.2"), Protocol: 80}
			if err := netlink.RouteAdd(r); err != nil {
				t.Error(err)
			}
		}
		if err := Purge(Config{Networks: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}); err != nil {
			t.Error(err)
		}
		remaining, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: 80}, netlink.RT_FILTER_PROTOCOL)
		if err != nil || len(remaining) != 1 || remaining[0].Dst.String() != "10.99.1.0/24" {
			t.Errorf("remaining routes: %v, %v", remaining, err)
		}
	})
}
