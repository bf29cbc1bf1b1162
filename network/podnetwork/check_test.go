package podnetwork

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/interfaces"
	"proa.dev/network/nettest"
)

// twin returns the Pod network of another cluster that has the same networks.
func twin(dir string) Config {
	c := dualStack(dir)
	c.Bridge, c.Table = "tp1", "proa-test1"
	return c
}

// checkReached checks that the node reaches a Pod with both families.
func checkReached(t *testing.T, when string, p *pod) {
	t.Helper()
	home := nettest.Home(t)
	nettest.Same(t, when, home.Ask("tcp", nettest.At(p.v4, 80)), p.id+" 10.244.7.1")
	nettest.Same(t, when+", IPv6", home.Ask("tcp", nettest.At(p.v6, 80)), p.id+" fd00:244:7::1")
}

// checkSays checks that an error contains all texts, or that there is none if no text is wanted.
func checkSays(t *testing.T, when string, err error, want ...string) {
	t.Helper()
	if (err == nil) != (len(want) == 0) {
		t.Fatalf("%s: %v, want %q", when, err, want)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q", when, err, w)
		}
	}
}

// TestStoppedClusterHasNoRoutes checks that a cluster works beside a stopped one with the same networks, and that the stopped one
// works again when it is started.
func TestStoppedClusterHasNoRoutes(t *testing.T) {
	first, second := dualStack(t.TempDir()), twin(t.TempDir())
	a := startNode(t, first)
	p := a.addPod("a", nil)
	a.stop()
	if err := Disable(first, true); err != nil {
		t.Fatal(err)
	}
	checkSays(t, "a Pod is connected", Check(first))
	p.Drop()
	removePod(t, a, "a")
	if err := Disable(first, true); err != nil {
		t.Fatal(err)
	}
	checkSays(t, "the bridge was disabled", Check(first), "the bridge tp0 is down")

	b := startNode(t, second)
	p = b.addPod("b", nil)
	p.Listen("tcp", ":80", "b")
	checkReached(t, "beside a stopped cluster", p)
	checkSays(t, "beside a stopped cluster", Check(second))
	checkSays(t, "beside a stopped cluster", CheckOverlap(second))
	b.stop()
	if err := Disable(second, false); err != nil {
		t.Fatal(err)
	}

	a.start()
	p = a.addPod("c", nil)
	p.Listen("tcp", ":80", "c")
	checkReached(t, "after the next start", p)
	b.start() // its cleanup stops it
}

// removePod removes the interface of a Pod, as the kernel does some time after its network namespace.
func removePod(t *testing.T, x *testNode, id string) {
	t.Helper()
	for _, r := range x.n.pool.all() {
		if r.ContainerID == id {
			nettest.Unplug(r.HostIf)
		}
	}
}

// TestOtherClusterWithTheSameNetwork checks that the bridge of another cluster is reported: always as an overlap, and as a failure by
// the cluster whose packets go there.
func TestOtherClusterWithTheSameNetwork(t *testing.T) {
	first, second := dualStack(t.TempDir()), twin(t.TempDir())
	startNode(t, first)
	checkSays(t, "alone", Check(first))
	checkSays(t, "alone", CheckOverlap(first))
	startNode(t, second)
	checkSays(t, "the older cluster", Check(first))
	checkSays(t, "the older cluster", CheckOverlap(first), "the interface tp1 has the address 10.244.7.1/24", "proa down", "--cluster-cidr")
	checkSays(t, "the younger cluster", Check(second), "packets to 10.244.7.0/24 leave by the interface tp0 instead of the bridge tp1",
		"proa down", "--cluster-cidr", "ip link delete tp0")
	// A process that does not know the node's networks takes those of the bridge.
	second.PodCIDRs = nil
	checkSays(t, "without the networks", Check(second), "packets to 10.244.7.0/24 leave by the interface tp0")
	checkSays(t, "without the networks", CheckOverlap(second), "the interface tp0 has the address 10.244.7.1/24")
}

// TestOwnTunnelIsNoOverlap checks that the address of the node's own tunnel is not reported, nor a network around that of the Pods.
func TestOwnTunnelIsNoOverlap(t *testing.T) {
	c := dualStack(t.TempDir())
	c.Tunnel = "tt0"
	startNode(t, c)
	for name, address := range map[string]string{"tt0": "10.244.7.0/32", "lan0": "10.0.0.5/8"} {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		link := &netlink.Bridge{LinkAttrs: attrs}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nettest.Unplug(name) })
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: interfaces.IPNet(netip.MustParsePrefix(address))}); err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
	checkSays(t, "the node's own tunnel", Check(c))
	checkSays(t, "the node's own tunnel", CheckOverlap(c))
}

// TestBridgeIsRepaired checks that a bridge that another program has set down or removed is reported and repaired.
func TestBridgeIsRepaired(t *testing.T) {
	c := dualStack(t.TempDir())
	x := startNode(t, c)
	p := x.addPod("a", nil)
	p.Listen("tcp", ":80", "a")
	checkReached(t, "at first", p)
	bridge, err := netlink.LinkByName(c.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetDown(bridge); err != nil {
		t.Fatal(err)
	}
	checkSays(t, "set down", Check(c), "the bridge tp0 is down")
	x.n.repairBridge()
	checkSays(t, "set down and repaired", Check(c))
	checkReached(t, "set down and repaired", p)
	checkPinned(t, "set down and repaired", c.Bridge, p)

	nettest.Unplug(c.Bridge)
	checkSays(t, "removed", Check(c), "the bridge tp0 does not exist")
	x.n.repairBridge()
	checkSays(t, "removed and repaired", Check(c))
	checkReached(t, "removed and repaired", p)
	checkPinned(t, "removed and repaired", c.Bridge, p)
}

// checkPinned checks that the entries exist that keep other Pods from claiming the addresses of a Pod: permanent ones in the neighbor
// tables of the node, and a sticky one in the forwarding table of the bridge.
func checkPinned(t *testing.T, when, bridge string, p *pod) {
	t.Helper()
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		t.Fatal(err)
	}
	neighbors, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{p.v4, p.v6} {
		if !slices.ContainsFunc(neighbors, func(n netlink.Neigh) bool {
			return n.IP.String() == address && n.State == unix.NUD_PERMANENT
		}) {
			t.Errorf("%s: the node has no permanent entry for %s", when, address)
		}
	}
	entries, err := netlink.NeighList(0, unix.AF_BRIDGE)
	if err != nil {
		t.Fatal(err)
	}
	mac := hardwareAddress(netip.MustParseAddr(p.v4)).String()
	if !slices.ContainsFunc(entries, func(n netlink.Neigh) bool { return n.HardwareAddr.String() == mac && n.Flags&sticky != 0 }) {
		t.Errorf("%s: the bridge has no sticky entry for %s", when, mac)
	}
}
