package nodebridge

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proa.dev/network/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func TestChoose(t *testing.T) {
	prefixes := func(text string) (out []netip.Prefix) {
		for _, s := range strings.Fields(text) {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	for _, c := range []struct {
		name, taken, within string
		six                 bool
	}{
		{name: "nothing is taken", within: "100.64.0.0/10"},
		{name: "other networks exist", taken: "10.96.0.0/16 10.244.0.0/16 192.168.0.0/24 fe80::/64", within: "100.64.0.0/10"},
		{name: "the first range is taken", taken: "100.64.0.0/10", within: "10.0.0.0/8"},
		{name: "most of the second range is taken too", taken: "100.64.0.0/10 10.0.0.0/9 10.128.0.0/10 10.192.0.0/11", within: "10.224.0.0/11"},
		{name: "only the last range is free", taken: "100.0.0.0/8 10.0.0.0/8 172.0.0.0/8 192.168.0.0/17", within: "192.168.128.0/17"},
		{name: "IPv6", six: true, taken: "fe80::/64", within: "fd00::/8"},
	} {
		got, err := Choose("/var/lib/proa", c.six, prefixes(c.taken))
		if err != nil || !netip.MustParsePrefix(c.within).Contains(got.Addr()) || got != got.Masked() {
			t.Errorf("%s: %s, %v; want one in %s", c.name, got, err, c.within)
		}
		if again, _ := Choose("/var/lib/proa", c.six, prefixes(c.taken)); again != got {
			t.Errorf("%s: %s and then %s", c.name, got, again)
		}
		if next, _ := Choose("/var/lib/proa", c.six, append(prefixes(c.taken), got)); next.Overlaps(got) {
			t.Errorf("%s: %s is taken, and was chosen", c.name, got)
		}
	}
	if got, err := Choose("x", false, prefixes("0.0.0.0/0")); err == nil {
		t.Errorf("everything is taken, and %s was chosen", got)
	}
}

// TestNodesReachEachOther connects two nodes: they reach each other and the machine, and hosts outside see the machine's address.
func TestNodesReachEachOther(t *testing.T) {
	nettest.Need(t)
	home, a, b, outside := nettest.Home(t), nettest.New(t), nettest.New(t), nettest.New(t)
	nettest.Wire(t, nettest.End{NS: home, Name: "out", Addrs: []string{"192.0.2.1/24"}},
		nettest.End{NS: outside, Name: "eth0", Addrs: []string{"192.0.2.9/24"}})
	t.Cleanup(func() { nettest.Unplug("out") })
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0))
	c := Config{
		Bridge: "pntest", Table: "pntest",
		Networks: []netip.Prefix{netip.MustParsePrefix("100.64.9.0/24"), netip.MustParsePrefix("fd00:9::/64")},
		Pods:     []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")},
	}
	for range 2 { // the second time everything exists already
		must(Ensure(c))
		must(Plug(c, 2, a.Path()))
		must(Plug(c, 3, b.Path()))
	}
	t.Cleanup(func() { must(Purge(c)) })

	for _, name := range []string{"pntest-2", "pntest-3"} {
		port, err := netlink.LinkByName(name)
		must(err)
		if info, err := netlink.LinkGetProtinfo(port); err != nil || !info.Hairpin {
			t.Errorf("%s is not in hairpin mode: %+v, %v", name, info, err)
		}
	}

	home.Listen("tcp", "100.64.9.1:80", "machine")
	b.Listen("tcp", "100.64.9.3:80", "b")
	b.Listen("tcp", "[fd00:9::3]:80", "b")
	outside.Listen("tcp", "192.0.2.9:80", "outside")
	for to, want := range map[string]string{
		"100.64.9.1:80": "machine 100.64.9.2", "100.64.9.3:80": "b 100.64.9.2", "[fd00:9::3]:80": "b fd00:9::2",
		"192.0.2.9:80": "outside 192.0.2.1",
	} {
		nettest.Same(t, to, a.Ask("tcp", to), want)
	}

	// A node that is plugged again from another namespace has its address again.
	replacement := nettest.New(t)
	must(Plug(c, 3, replacement.Path()))
	replacement.Listen("tcp", "100.64.9.3:80", "again")
	nettest.Same(t, "the node in its new namespace", a.Ask("tcp", "100.64.9.3:80"), "again 100.64.9.2")
	// Unplugging the old namespace does not unplug the new one.
	must(Unplug(b.Path()))
	nettest.Same(t, "after the old namespace was unplugged", a.Ask("tcp", "100.64.9.3:80"), "again 100.64.9.2")
	must(Unplug(a.Path()))
	must(Unplug(a.Path()))
	must(Purge(c))
	links, err := netlink.LinkList()
	must(err)
	if slices.ContainsFunc(links, func(l netlink.Link) bool {
		return strings.HasPrefix(l.Attrs().Name, "pn") && l.Attrs().Name != "pntest-3"
	}) {
		t.Errorf("links are left: %v", links)
	}
}

// TestStoppedClusterHasNoRoutes checks that nodes are reached beside a stopped cluster whose bridge has the same networks, and those of
// the stopped cluster after its next start. A bridge that was left up is reported.
func TestStoppedClusterHasNoRoutes(t *testing.T) {
	nettest.Need(t)
	home := nettest.Home(t)
	networks := []netip.Prefix{netip.MustParsePrefix("100.64.7.0/24"), netip.MustParsePrefix("fd00:7::/64")}
	first := Config{Bridge: "pnfirst", Table: "pnfirst", Networks: networks}
	second := Config{Bridge: "pnsecond", Table: "pnsecond", Networks: networks}
	t.Cleanup(func() {
		if err := errors.Join(Purge(first), Purge(second)); err != nil {
			t.Error(err)
		}
	})
	for _, c := range []Config{first, second, first} {
		node := nettest.New(t)
		if err := errors.Join(Ensure(c), Plug(c, 2, node.Path()), Check(c)); err != nil {
			t.Fatal(err)
		}
		node.Listen("tcp", ":80", c.Bridge)
		nettest.Same(t, c.Bridge, home.Ask("tcp", "100.64.7.2:80"), c.Bridge+" 100.64.7.1")
		nettest.Same(t, c.Bridge+", IPv6", home.Ask("tcp", "[fd00:7::2]:80"), c.Bridge+" fd00:7::1")
		if err := Disable(c); err != nil {
			t.Fatal(err)
		}
		if err := Check(c); err == nil || !strings.Contains(err.Error(), "the bridge "+c.Bridge+" is down") {
			t.Errorf("the disabled bridge: %v", err)
		}
	}
	if err := errors.Join(Ensure(first), Ensure(second)); err != nil {
		t.Fatal(err)
	}
	second.Networks = nil
	if err := Check(second); err == nil || !strings.Contains(err.Error(), "leave by the interface pnfirst instead of the bridge pnsecond") {
		t.Errorf("two bridges with the same network: %v", err)
	}
}

func TestTaken(t *testing.T) {
	nettest.Need(t)
	nettest.Wire(t, nettest.End{NS: nettest.Home(t), Name: "one", Addrs: []string{"198.51.100.7/24"}},
		nettest.End{NS: nettest.New(t), Name: "two"})
	t.Cleanup(func() { nettest.Unplug("one") })
	taken, err := Taken()
	if err != nil || !slices.Contains(taken, netip.MustParsePrefix("198.51.100.0/24")) {
		t.Errorf("%v, %v", taken, err)
	}
}

// TestDNSRelay lets a node query a DNS server on the loopback interface of the machine.
func TestDNSRelay(t *testing.T) {
	nettest.Need(t)
	home, node := nettest.Home(t), nettest.New(t)
	c := Config{Bridge: "pnrelay", Table: "pnrelay", Networks: []netip.Prefix{netip.MustParsePrefix("100.64.8.0/24")}}
	if err := errors.Join(Ensure(c), Plug(c, 2, node.Path())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = Purge(c) })
	home.Listen("udp", "127.0.0.1:5353", "dns")
	home.Listen("tcp", "127.0.0.1:5353", "dns")
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- (&Relay{Listen: "100.64.8.1:53", Server: "127.0.0.1:5353", Log: slog.New(slog.DiscardHandler)}).Run(ctx)
	}()
	for _, network := range []string{"udp", "tcp"} {
		got := node.Ask(network, "100.64.8.1:53")
		for end := time.Now().Add(30 * time.Second); strings.HasPrefix(got, "error") && time.Now().Before(end); {
			time.Sleep(10 * time.Millisecond) // it may not listen yet
			got = node.Ask(network, "100.64.8.1:53")
		}
		nettest.Same(t, network, got, "dns 127.0.0.1")
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
