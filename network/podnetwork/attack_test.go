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

// listenUDP opens a UDP socket and returns a function that receives from it: the text and its sender, or "nothing".
func listenUDP(t *testing.T, ns *nettest.NS) func() string {
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

// sendUDP sends a packet from an address of the namespace to port 9.
func sendUDP(t *testing.T, ns *nettest.NS, from, to, text string) {
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

// sendUntilReceived sends packets until one arrives: a bridge port may need a moment after its interface is up.
func sendUntilReceived(t *testing.T, ns *nettest.NS, from, to, text string, received func() string) string {
	t.Helper()
	for i := range 100 {
		sendUDP(t, ns, from, to, text)
		if got := received(); got != "nothing" {
			for ; i > 0 && received() != "nothing"; i-- { // those that were sent before may be late
			}
			return got
		}
	}
	return "nothing"
}

// TestPodsCannotUseAnothersAddress lets a Pod with all privileges in its own namespace send from the address of another
// Pod.
func TestPodsCannotUseAnothersAddress(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	victim, server, attacker := x.addPod("victim", nil), x.addPod("server", nil), x.addPod("attacker", nil)
	received := listenUDP(t, server.NS)
	attacker.Do(func() {
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
	for _, c := range []struct{ own, others, server string }{{attacker.v4, victim.v4, server.v4}, {attacker.v6, victim.v6, server.v6}} {
		nettest.Same(t, "from its own address", sendUntilReceived(t, attacker.NS, c.own, c.server, "genuine", received),
			"genuine from "+c.own)
		sendUDP(t, attacker.NS, c.others, c.server, "spoofed")
		nettest.Same(t, "from another's address", received(), "nothing")
	}
	// With the victim's hardware address too.
	attacker.Do(func() {
		eth, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetHardwareAddr(eth, hardwareAddress(netip.MustParseAddr(victim.v4)))
		}
		if err != nil {
			t.Error(err)
		}
	})
	sendUDP(t, attacker.NS, victim.v4, server.v4, "spoofed")
	nettest.Same(t, "from another's IP and hardware address", received(), "nothing")
	// The victim can still send.
	nettest.Same(t, "from the owner of the address", sendUntilReceived(t, victim.NS, victim.v4, server.v4, "genuine", received),
		"genuine from "+victim.v4)
}

// TestPodsCannotBypassTheNode lets a Pod send to another one directly over the bridge, bypassing Services and
// policies.
func TestPodsCannotBypassTheNode(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	server, attacker := x.addPod("server", nil), x.addPod("attacker", nil)
	received := listenUDP(t, server.NS)
	mac := hardwareAddress(netip.MustParseAddr(server.v4))
	nettest.Same(t, "through the node", sendUntilReceived(t, attacker.NS, attacker.v4, server.v4, "through the node", received),
		"through the node from "+attacker.v4)
	attacker.Do(func() {
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
	sendUDP(t, attacker.NS, attacker.v4, server.v4, "direct")
	nettest.Same(t, "directly to its hardware address", received(), "nothing")
	sendUDP(t, attacker.NS, attacker.v6, server.v6, "direct")
	nettest.Same(t, "directly to its hardware address", received(), "nothing")
	// In a broadcast frame, and in a multicast frame.
	for _, to := range []net.HardwareAddr{{255, 255, 255, 255, 255, 255}, {0x01, 0, 0x5e, 0, 0, 1}} {
		attacker.Do(func() { sendMulticast(t, to, netip.MustParseAddr(attacker.v4), netip.MustParseAddr(server.v4)) })
		nettest.Same(t, "in a frame to "+to.String(), received(), "nothing")
	}
}

// sendMulticast sends a UDP packet for one receiver in a multicast frame.
func sendMulticast(t *testing.T, mac net.HardwareAddr, from, to netip.Addr) {
	ip := slices.Concat([]byte{0x45, 0, 0, 32, 0, 0, 0, 0, 64, 17, 0, 0}, from.AsSlice(), to.AsSlice())
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(ip[i])<<8 | uint32(ip[i+1])
	}
	sum = ^(sum&0xffff + sum>>16)
	ip[10], ip[11] = byte(sum>>8), byte(sum)
	sendFrame(t, func(own net.HardwareAddr) []byte {
		return slices.Concat(mac, own, []byte{8, 0}, ip, []byte{0, 99, 0, 9, 0, 12, 0, 0}, []byte("shou"))
	})
}

// sendFrame sends a raw frame through the interface of a Pod.
func sendFrame(t *testing.T, frame func(own net.HardwareAddr) []byte) {
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

// TestLoopbackOfTheNodeIsNotReachable sends packets to 127.0.0.1 of the node, from a Pod and from another machine. The kernel
// accepts them where route_localnet is set: proa sets it for its bridge, and another program may set it for all
// interfaces.
func TestLoopbackOfTheNodeIsNotReachable(t *testing.T) {
	nettest.Need(t)
	home, machine := nettest.Home(t), nettest.New(t)
	nettest.Wire(t, nettest.End{NS: home, Name: "out0", Addrs: []string{"192.168.9.1/24"}, Via: []string{"192.168.9.2"}},
		nettest.End{NS: machine, Name: "eth0", Addrs: []string{"192.168.9.2/24"}, Via: []string{"192.168.9.1"}})
	t.Cleanup(func() { nettest.Unplug("out0") })
	for _, name := range []string{"all", "out0"} {
		if err := sysctl("net/ipv4/conf/"+name+"/route_localnet", "1"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sysctl("net/ipv4/conf/"+name+"/route_localnet", "0") })
	}
	home.Listen("tcp", "127.0.0.1:8081", "local")
	// routeLoopback makes a namespace send packets for 127.0.0.1 to a gateway.
	routeLoopback := func(ns *nettest.NS, via string) {
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
	routeLoopback(machine, "192.168.9.1")
	nettest.Same(t, "before the Pod network is set up", machine.Ask("tcp", "127.0.0.1:8081"), "local 192.168.9.2")
	x := startNode(t, dualStack(t.TempDir()))
	pod := x.addPod("a", ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80}))
	pod.Listen("tcp", ":80", "a")
	if !machine.Silent("tcp", "127.0.0.1:8081") {
		t.Error("another machine reaches the node's loopback")
	}
	nettest.Same(t, "the node itself", home.Ask("tcp", "127.0.0.1:8081"), "local 127.0.0.1")
	nettest.Same(t, "a host port on localhost", home.Ask("tcp", "127.0.0.1:8080"), "a 10.244.7.1")
	routeLoopback(pod.NS, "10.244.7.1")
	if !pod.Silent("tcp", "127.0.0.1:8081") {
		t.Error("a Pod reaches the node's loopback")
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
	x := startNode(t, dualStack(t.TempDir()))
	attacker, other := x.addPod("attacker", nil), x.addPod("other", nil)
	// A host without the protection accepts the advertisement, or the test would show nothing.
	unprotected := nettest.New(t)
	nettest.Wire(t, nettest.End{NS: home, Name: "out0", Addrs: []string{"fd99::1/64"}},
		nettest.End{NS: unprotected, Name: "eth0", Addrs: []string{"fd99::2/64"}})
	unprotected.Do(func() { advertise(t) })
	for deadline := time.Now().Add(30 * time.Second); len(learned()) == 0 && time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
		unprotected.Do(func() { advertise(t) })
	}
	if len(learned()) == 0 {
		t.Error("the host without protection does not accept it; the test shows nothing")
	}
	nettest.Unplug("out0")

	attacker.Do(func() { advertise(t) })
	nettest.Same(t, "the node", strings.Join(learned(), ", "), "")
	raw, err := os.ReadFile("/proc/sys/net/ipv6/conf/tp0/accept_ra")
	if err != nil {
		t.Fatal(err)
	}
	nettest.Same(t, "accept_ra of the bridge", strings.TrimSpace(string(raw)), "0")
	other.Do(func() { nettest.Same(t, "another Pod", strings.Join(learned(), ", "), "") })
}
