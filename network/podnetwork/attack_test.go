package podnetwork

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
	"proa.dev/network/interfaces"
	"proa.dev/network/nettest"
)

// inbox is a socket that records what arrives.
func inbox(t *testing.T, ns *nettest.NS) func() string {
	t.Helper()
	var c net.PacketConn
	ns.Do(func() {
		var err error
		if c, err = net.ListenPacket("udp", ":9"); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { c.Close() })
	return func() string {
		buf := make([]byte, 100)
		_ = c.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return "nothing"
		}
		host, _, _ := net.SplitHostPort(from.String())
		return string(buf[:n]) + " from " + host
	}
}

// throw sends a packet from an address of the namespace.
func throw(t *testing.T, ns *nettest.NS, from, to, text string) {
	t.Helper()
	ns.Do(func() {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: net.ParseIP(from)}, &net.UDPAddr{IP: net.ParseIP(to), Port: 9})
		if err != nil {
			t.Errorf("from %s to %s: %v", from, to, err)
			return
		}
		defer c.Close()
		_, _ = c.Write([]byte(text))
	})
}

// reaches sends packets until one arrives: a bridge port may need a moment after its interface is up.
func reaches(t *testing.T, ns *nettest.NS, from, to, text string, arrives func() string) string {
	t.Helper()
	for range 10 {
		throw(t, ns, from, to, text)
		if got := arrives(); got != "nothing" {
			return got
		}
	}
	return "nothing"
}

// TestPodsCannotUseAnothersAddress lets a Pod with all privileges in its own namespace send from the address of another
// Pod.
func TestPodsCannotUseAnothersAddress(t *testing.T) {
	x := start(t, dualStack(t.TempDir()))
	victim, server, liar := x.pod("victim", nil), x.pod("server", nil), x.pod("liar", nil)
	arrives := inbox(t, server.NS)
	liar.Do(func() {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		for _, a := range []string{victim.v4, victim.v6} {
			addr := &netlink.Addr{IPNet: interfaces.HostNet(netip.MustParseAddr(a)), Flags: unix.IFA_F_NODAD}
			if err := netlink.AddrAdd(eth, addr); err != nil {
				t.Error(err)
			}
		}
	})
	for _, c := range []struct{ own, others, server string }{{liar.v4, victim.v4, server.v4}, {liar.v6, victim.v6, server.v6}} {
		nettest.Same(t, "from its own address", reaches(t, liar.NS, c.own, c.server, "truth", arrives), "truth from "+c.own)
		throw(t, liar.NS, c.others, c.server, "lie")
		nettest.Same(t, "from another's address", arrives(), "nothing")
	}
	// With the victim's hardware address too.
	liar.Do(func() {
		eth, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetHardwareAddr(eth, hardwareAddress(netip.MustParseAddr(victim.v4)))
		}
		if err != nil {
			t.Error(err)
		}
	})
	throw(t, liar.NS, victim.v4, server.v4, "lie")
	nettest.Same(t, "as another altogether", arrives(), "nothing")
	// The victim is none the worse for it.
	nettest.Same(t, "from the owner of the address", reaches(t, victim.NS, victim.v4, server.v4, "truth", arrives), "truth from "+victim.v4)
}

// TestPodsCannotGoAroundTheNode lets a Pod send to another one directly over the bridge, bypassing Services and
// policies.
func TestPodsCannotGoAroundTheNode(t *testing.T) {
	x := start(t, dualStack(t.TempDir()))
	server, liar := x.pod("server", nil), x.pod("liar", nil)
	arrives := inbox(t, server.NS)
	mac := hardwareAddress(netip.MustParseAddr(server.v4))
	nettest.Same(t, "through the node", reaches(t, liar.NS, liar.v4, server.v4, "through the node", arrives),
		"through the node from "+liar.v4)
	liar.Do(func() {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		for _, a := range []netip.Addr{netip.MustParseAddr(server.v4), netip.MustParseAddr(server.v6)} {
			if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: eth.Attrs().Index, IP: a.AsSlice(), HardwareAddr: mac,
				State: unix.NUD_PERMANENT}); err != nil {
				t.Error(err)
			}
			if err := netlink.RouteReplace(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: interfaces.HostNet(a),
				Scope: netlink.SCOPE_LINK}); err != nil {
				t.Error(err)
			}
		}
	})
	throw(t, liar.NS, liar.v4, server.v4, "direct")
	nettest.Same(t, "directly to its hardware address", arrives(), "nothing")
	throw(t, liar.NS, liar.v6, server.v6, "direct")
	nettest.Same(t, "directly to its hardware address", arrives(), "nothing")
	// In a frame that everybody gets, or every member of a group.
	for _, to := range []net.HardwareAddr{{255, 255, 255, 255, 255, 255}, {0x01, 0, 0x5e, 0, 0, 1}} {
		liar.Do(func() { shout(t, to, netip.MustParseAddr(liar.v4), netip.MustParseAddr(server.v4)) })
		nettest.Same(t, "in a frame to "+to.String(), arrives(), "nothing")
	}
}

// shout sends a UDP packet for one receiver in a multicast frame.
func shout(t *testing.T, mac net.HardwareAddr, from, to netip.Addr) {
	ip := slices.Concat([]byte{0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0}, from.AsSlice(), to.AsSlice())
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = ^(sum&0xffff + sum>>16)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	cast(t, func(own net.HardwareAddr) []byte {
		return slices.Concat(mac, own, []byte{8, 0}, ip, []byte{0, 99, 0, 9, 0, 12, 0, 0}, []byte("shou"))
	})
}

// cast sends a raw frame through the interface of a Pod.
func cast(t *testing.T, frame func(own net.HardwareAddr) []byte) {
	link, err := netlink.LinkByName("eth0")
	if err != nil {
		t.Error(err)
		return
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(fd)
	if err := unix.Sendto(fd, frame(link.Attrs().HardwareAddr), 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index}); err != nil {
		t.Error(err)
	}
}

// TestNobodyElseReachesLoopback sends packets to 127.0.0.1 of the node, from a Pod and from another machine. The kernel
// accepts them where route_localnet is set: we set it for our bridge, and another program may set it for all
// interfaces.
func TestNobodyElseReachesLoopback(t *testing.T) {
	nettest.Need(t)
	home, neighbour := nettest.Home(t), nettest.New(t)
	nettest.Wire(t, nettest.End{NS: home, Name: "out0", Addrs: []string{"192.168.9.1/24"}, Via: []string{"192.168.9.2"}},
		nettest.End{NS: neighbour, Name: "eth0", Addrs: []string{"192.168.9.2/24"}, Via: []string{"192.168.9.1"}})
	t.Cleanup(func() { nettest.Unplug("out0") })
	for _, name := range []string{"all", "out0"} {
		if err := sysctl("net/ipv4/conf/"+name+"/route_localnet", "1"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sysctl("net/ipv4/conf/"+name+"/route_localnet", "0") })
	}
	home.Listen("tcp", "127.0.0.1:8081", "secret")
	// aim makes 127.0.0.1 an address like any other, on the other side of the cable.
	aim := func(ns *nettest.NS, via string) {
		ns.Do(func() {
			lo, err := netlink.LinkByName("lo")
			if err != nil {
				t.Error(err)
				return
			}
			if addrs, err := netlink.AddrList(lo, netlink.FAMILY_V4); err == nil {
				for _, a := range addrs {
					_ = netlink.AddrDel(lo, &a)
				}
			}
			_ = sysctl("net/ipv4/conf/all/route_localnet", "1")
			if err := netlink.RouteReplace(&netlink.Route{Dst: interfaces.IPNet(netip.MustParsePrefix("127.0.0.1/32")),
				Gw: net.ParseIP(via)}); err != nil {
				t.Error(err)
			}
		})
	}
	aim(neighbour, "192.168.9.1")
	nettest.Same(t, "before there is a cluster", neighbour.Ask("tcp", "127.0.0.1:8081"), "secret 192.168.9.2")
	x := start(t, dualStack(t.TempDir()))
	pod := x.pod("a", ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80}))
	pod.Listen("tcp", ":80", "a")
	if !neighbour.Silent("tcp", "127.0.0.1:8081") {
		t.Error("a neighbour reaches what listens on the node's loopback only")
	}
	nettest.Same(t, "the node itself", home.Ask("tcp", "127.0.0.1:8081"), "secret 127.0.0.1")
	nettest.Same(t, "a port of the node on localhost", home.Ask("tcp", "127.0.0.1:8080"), "a 10.244.7.1")
	aim(pod.NS, "10.244.7.1")
	if !pod.Silent("tcp", "127.0.0.1:8081") {
		t.Error("a Pod reaches what listens on the node's loopback only")
	}
}

// TestRogueRouter lets a Pod send IPv6 router advertisements. A machine that accepts them sends its traffic to the Pod.
func TestRogueRouter(t *testing.T) {
	nettest.Need(t)
	home := nettest.Home(t)
	for _, name := range []string{"all", "default"} {
		was, err := os.ReadFile("/proc/sys/net/ipv6/conf/" + name + "/accept_ra")
		if err != nil {
			t.Skip("the kernel has no IPv6")
		}
		_ = sysctl("net/ipv6/conf/"+name+"/accept_ra", "2")
		t.Cleanup(func() { _ = sysctl("net/ipv6/conf/"+name+"/accept_ra", strings.TrimSpace(string(was))) })
	}
	learned := func() (out []string) {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V6)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if r.Protocol == unix.RTPROT_RA || r.Dst != nil && r.Dst.String() == "fd66::/64" {
				out = append(out, r.String())
			}
		}
		return out
	}
	x := start(t, dualStack(t.TempDir()))
	liar, other := x.pod("liar", nil), x.pod("other", nil)
	// Who is not protected believes it, or the test would show nothing.
	believer := nettest.New(t)
	nettest.Wire(t, nettest.End{NS: home, Name: "out0", Addrs: []string{"fd99::1/64"}},
		nettest.End{NS: believer, Name: "eth0", Addrs: []string{"fd99::2/64"}})
	believer.Do(func() { advertise(t) })
	for deadline := time.Now().Add(5 * time.Second); len(learned()) == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
		believer.Do(func() { advertise(t) })
	}
	if len(learned()) == 0 {
		t.Error("not even who listens to routers believes a router; the test shows nothing")
	}
	nettest.Unplug("out0")

	liar.Do(func() { advertise(t) })
	nettest.Same(t, "the node", strings.Join(learned(), ", "), "")
	raw, err := os.ReadFile("/proc/sys/net/ipv6/conf/tp0/accept_ra")
	if err != nil {
		t.Fatal(err)
	}
	nettest.Same(t, "accept_ra of the bridge", strings.TrimSpace(string(raw)), "0")
	other.Do(func() { nettest.Same(t, "another Pod", strings.Join(learned(), ", "), "") })
}
