package teardown

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proa.dev/network/nettest"
	"proa.dev/network/nodebridge"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/run/machine/nodefolder"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// TestHaltLeavesNoRoutes checks that a stopped cluster has no interface that is up. Where containers of another runtime may go on, the
// bridge of connected Pods stays up; and the bridge and the tunnel stay of a cluster that has no Pod network: they are another's.
func TestHaltLeavesNoRoutes(t *testing.T) {
	nettest.Need(t)
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	pods, nodes := nodefolder.PodNetwork(dir, "a", log), nodefolder.NodeBridge(dir)
	pods.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.6.0/24"), netip.MustParsePrefix("fd00:244:6::/64")}
	nodes.Networks = []netip.Prefix{netip.MustParsePrefix("100.64.6.0/24")}
	t.Cleanup(func() {
		if err := PurgeNodes(t.Context(), dir, log); err != nil {
			t.Error(err)
		}
		if err := nodebridge.Purge(nodes); err != nil {
			t.Error(err)
		}
	})
	addLink(t, pods.Bridge)
	addLink(t, nodes.Bridge)
	addLink(t, nodefolder.Tunnel(dir))
	halt := func(when string, want ...string) {
		t.Helper()
		if _, err := HaltNodes(t.Context(), dir, time.Second, nil, log); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		up := map[string]bool{}
		links, err := net.Interfaces()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			up[l.Name] = l.Flags&net.FlagUp != 0
		}
		for _, name := range want {
			if !up[name] {
				t.Errorf("%s: %s is down", when, name)
			}
			delete(up, name)
		}
		for _, name := range []string{pods.Bridge, nodes.Bridge, nodefolder.Tunnel(dir)} {
			if up[name] {
				t.Errorf("%s: %s is up", when, name)
			}
		}
	}
	if err := os.MkdirAll(nodefolder.ImageDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	halt("there was no node, and there are only images", pods.Bridge, nodefolder.Tunnel(dir))

	if err := os.MkdirAll(filepath.Join(pods.DataDir, "network"), 0o700); err != nil {
		t.Fatal(err)
	}
	port := addLink(t, "port0")
	bridge, err := netlink.LinkByName(pods.Bridge)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetMaster(port, bridge); err != nil {
		t.Fatal(err)
	}
	halt("a Pod is connected", pods.Bridge, nodefolder.Tunnel(dir))
	nettest.Unplug("port0")
	halt("no Pod is connected")

	// The next start sets the bridges up with all their addresses.
	n, err := netpod.New(t.Context(), pods)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := n.Serve(ctx); err != nil {
		t.Fatal(err)
	}
	if err := netpod.Check(pods); err != nil {
		t.Error(err)
	}
	if err := nodebridge.Ensure(nodes); err != nil {
		t.Fatal(err)
	}
	if err := nodebridge.Check(nodes); err != nil {
		t.Error(err)
	}
	halt("after the next start")
}

// addLink adds a bridge, or the interface port0 that can be connected to one, and sets it up.
func addLink(t *testing.T, name string) netlink.Link {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	var link netlink.Link = &netlink.Bridge{LinkAttrs: attrs}
	if name == "port0" {
		link = &netlink.Veth{LinkAttrs: attrs, PeerName: "port1"}
	}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nettest.Unplug(name) })
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	return link
}

// TestHaltRemovesRoutes checks that a stopped node leaves no route to Pods on other machines and to Services, and no address of its DNS
// server, and that it keeps those of other clusters.
func TestHaltRemovesRoutes(t *testing.T) {
	nettest.Need(t)
	dir := t.TempDir()
	addLink(t, "proa0other") // there is another cluster
	port := addLink(t, "port0")
	peer, err := netlink.LinkByName("port1")
	if err == nil {
		err = netlink.LinkSetUp(peer)
	}
	if err == nil {
		err = netlink.AddrAdd(port, &netlink.Addr{IPNet: network("192.0.2.1/24")})
	}
	if err != nil {
		t.Fatal(err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []netlink.Route{
		{Dst: network("10.244.1.0/24"), Gw: net.ParseIP("192.0.2.2"), Protocol: netlink.RouteProtocol(nodefolder.NodeRoutes(dir).Protocol)},
		{Dst: network("10.99.1.0/24"), Gw: net.ParseIP("192.0.2.2"), Protocol: netlink.RouteProtocol(nodefolder.NodeRoutes(dir).Protocol)},
		{Dst: network("10.96.0.0/16"), LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Protocol: 81},
		{Dst: network("10.97.0.0/16"), LinkIndex: lo.Attrs().Index, Scope: netlink.SCOPE_LINK, Protocol: 81},
	} {
		if err := netlink.RouteAdd(&r); err != nil {
			t.Fatalf("%s: %v", r.Dst, err)
		}
		t.Cleanup(func() { _ = netlink.RouteDel(&r) })
	}
	for _, a := range []string{"10.96.0.10/32", "10.97.0.10/32"} {
		address := &netlink.Addr{IPNet: network(a)}
		if err := netlink.AddrAdd(lo, address); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netlink.AddrDel(lo, address) })
	}
	if err := os.MkdirAll(nodefolder.AgentDir(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{nodefolder.RoutesFile(dir): "10.244.0.0/16\n",
		nodefolder.ServiceNetworksFile(dir): "10.96.0.0/16\n", nodefolder.DNSAddressFile(dir): "10.96.0.10"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeRoutes(dir); err != nil {
		t.Fatal(err)
	}
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	left := map[string]bool{}
	for _, r := range routes {
		if r.Dst != nil {
			left[r.Dst.String()] = true
		}
	}
	addrs, err := netlink.AddrList(lo, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		left[a.IPNet.String()] = true
	}
	for what, want := range map[string]bool{"10.244.1.0/24": false, "10.96.0.0/16": false, "10.96.0.10/32": false, "10.99.1.0/24": true,
		"10.97.0.0/16": true, "10.97.0.10/32": true} {
		if left[what] != want {
			t.Errorf("%s is there: %v, want %v", what, left[what], want)
		}
	}
}

// network parses an address with the length of its network.
func network(text string) *net.IPNet {
	ip, n, err := net.ParseCIDR(text)
	if err != nil {
		panic(err)
	}
	return &net.IPNet{IP: ip, Mask: n.Mask}
}
