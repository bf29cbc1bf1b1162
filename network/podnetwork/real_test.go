package podnetwork

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/cni"
	"proa.dev/network/interfaces"
	"proa.dev/network/nettest"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

func dualStack(dir string) Config {
	return Config{
		DataDir: dir, Bridge: "tp0", Table: "proa-test",
		PodCIDRs:     []netip.Prefix{netip.MustParsePrefix("10.244.7.0/24"), netip.MustParsePrefix("fd00:244:7::/64")},
		ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")},
	}
}

// testNode is a running Pod network; the tests call its CNI plugin as the container runtime does.
type testNode struct {
	t       testing.TB
	conf    Config
	confDir string
	cancel  context.CancelFunc
	done    chan struct{}
	n       *Network
}

func startNode(t testing.TB, c Config) *testNode {
	t.Helper()
	nettest.Need(t)
	x := &testNode{t: t, conf: c, confDir: t.TempDir()}
	x.start()
	t.Cleanup(func() {
		x.stop()
		if err := Purge(c); err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *testNode) start() {
	x.t.Helper()
	var err error
	if x.n, err = New(x.t.Context(), x.conf); err != nil {
		x.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(x.t.Context())
	x.cancel, x.done = cancel, make(chan struct{})
	go func() {
		defer close(x.done)
		if err := x.n.Serve(ctx); err != nil {
			x.t.Error(err)
		}
	}()
	if err := x.n.WriteConf(x.confDir); err != nil {
		x.t.Fatal(err)
	}
}

func (x *testNode) stop() {
	x.cancel()
	<-x.done
}

// call calls the plugin as a runtime does: it takes the configuration of the plugin from the list, and adds the options for this
// container.
func (x *testNode) call(command, id string, ns *nettest.NS, runtime map[string]any) (string, error) {
	x.t.Helper()
	raw, err := os.ReadFile(filepath.Join(x.confDir, confName))
	if err != nil {
		x.t.Fatal(err)
	}
	var list struct {
		Name    string
		Plugins []map[string]any
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		x.t.Fatal(err)
	}
	conf := list.Plugins[0]
	conf["name"], conf["cniVersion"] = list.Name, cni.Current
	if runtime != nil {
		conf["runtimeConfig"] = runtime
	}
	if valid, ok := runtime["valid"]; ok {
		conf["cni.dev/valid-attachments"] = valid
	}
	if prev, ok := runtime["prev"]; ok {
		conf["prevResult"] = prev
	}
	in, _ := json.Marshal(conf)
	env := map[string]string{"CNI_COMMAND": command, "CNI_CONTAINERID": id, "CNI_IFNAME": "eth0",
		"CNI_ARGS": "K8S_POD_NAMESPACE=default;K8S_POD_NAME=" + id + ";K8S_POD_UID=u-" + id}
	if ns != nil {
		env["CNI_NETNS"] = ns.Path()
	}
	var out bytes.Buffer
	if cni.Main(func(k string) string { return env[k] }, bytes.NewReader(in), &out) != 0 {
		return "", fmt.Errorf("%s", out.String())
	}
	return out.String(), nil
}

// pod is a container with a network.
type pod struct {
	*nettest.NS
	id     string
	v4, v6 string
}

func (x *testNode) addPod(id string, runtime map[string]any) *pod {
	x.t.Helper()
	p, err := x.tryAddPod(id, runtime)
	if err != nil {
		x.t.Fatal(err)
	}
	return p
}

func (x *testNode) tryAddPod(id string, runtime map[string]any) (*pod, error) {
	p := &pod{NS: nettest.New(x.t), id: id}
	out, err := x.call(cni.Add, id, p.NS, runtime)
	if err != nil {
		return nil, err
	}
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal([]byte(out), &result); err != nil {
		return nil, err
	}
	for _, ip := range result.IPs {
		if ip.Address.Addr().Is4() {
			p.v4 = ip.Address.Addr().String()
		} else {
			p.v6 = ip.Address.Addr().String()
		}
	}
	return p, nil
}

func (x *testNode) mustCall(command, id string, ns *nettest.NS, runtime map[string]any) string {
	x.t.Helper()
	out, err := x.call(command, id, ns, runtime)
	if err != nil {
		x.t.Fatalf("%s %s: %v", command, id, err)
	}
	return out
}

func ports(list ...cni.PortMapping) map[string]any { return map[string]any{"portMappings": list} }

func TestPodsReachEachOther(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	a, b := x.addPod("a", nil), x.addPod("b", nil)
	for _, network := range []string{"tcp", "udp"} {
		b.Listen(network, ":80", "b")
		for _, addrs := range [][2]string{{b.v4, a.v4}, {b.v6, a.v6}} {
			nettest.Same(t, network+" to "+addrs[0], a.Ask(network, nettest.At(addrs[0], 80)), "b "+addrs[1])
		}
	}
	// The node reaches Pods, Pods reach the node, and themselves.
	home := nettest.Home(t)
	nettest.Same(t, "node", home.Ask("tcp", nettest.At(b.v4, 80)), "b 10.244.7.1")
	nettest.Same(t, "node, IPv6", home.Ask("tcp", nettest.At(b.v6, 80)), "b fd00:244:7::1")
	home.Listen("tcp", ":8000", "node")
	nettest.Same(t, "to the node", a.Ask("tcp", "10.244.7.1:8000"), "node "+a.v4)
	nettest.Same(t, "to itself", b.Ask("tcp", nettest.At(b.v4, 80)), "b "+b.v4)
	nettest.Same(t, "lo", b.Ask("tcp", "127.0.0.1:80"), "b 127.0.0.1")
	nettest.Same(t, "lo, IPv6", b.Ask("tcp", "[::1]:80"), "b ::1")
}

func TestOutsideAndHostPorts(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	outside := nettest.New(t)
	nettest.Wire(t, nettest.End{NS: nettest.Home(t), Name: "out0", Addrs: []string{"192.168.9.1/24", "fd99::1/64"}},
		nettest.End{NS: outside, Name: "eth0", Addrs: []string{"192.168.9.2/24", "fd99::2/64"}})
	t.Cleanup(func() { nettest.Unplug("out0") })
	a := x.addPod("a", ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80, Protocol: "TCP"},
		cni.PortMapping{HostPort: 5353, ContainerPort: 53, Protocol: "UDP"},
		cni.PortMapping{HostPort: 9090, ContainerPort: 80, Protocol: "tcp", HostIP: "192.168.9.1"}))
	b := x.addPod("b", nil)
	for _, network := range []string{"tcp", "udp"} {
		outside.Listen(network, ":7", "outside")
		nettest.Same(t, network+" leaves with the node's address", a.Ask(network, "192.168.9.2:7"), "outside 192.168.9.1")
		nettest.Same(t, network+" over IPv6", a.Ask(network, "[fd99::2]:7"), "outside fd99::1")
	}
	a.Listen("tcp", ":80", "a")
	a.Listen("udp", ":53", "a")
	home := nettest.Home(t)
	for _, c := range []struct {
		from    *nettest.NS
		network string
		to      string
		want    string
	}{
		{outside, "tcp", "192.168.9.1:8080", "a 192.168.9.2"},
		{outside, "tcp", "[fd99::1]:8080", "a fd99::2"},
		{outside, "udp", "192.168.9.1:5353", "a 192.168.9.2"},
		{outside, "udp", "[fd99::1]:5353", "a fd99::2"},
		{outside, "tcp", "192.168.9.1:9090", "a 192.168.9.2"},
		{b.NS, "tcp", "192.168.9.1:8080", "a " + b.v4},
		{b.NS, "tcp", "10.244.7.1:8080", "a " + b.v4},
		{b.NS, "udp", "192.168.9.1:5353", "a " + b.v4},
		{b.NS, "tcp", "[fd99::1]:8080", "a " + b.v6},
		{a.NS, "tcp", "192.168.9.1:8080", "a 10.244.7.1"},
		{a.NS, "tcp", "[fd99::1]:8080", "a fd00:244:7::1"},
		{a.NS, "udp", "192.168.9.1:5353", "a 10.244.7.1"},
		{home, "tcp", "127.0.0.1:8080", "a 10.244.7.1"},
		{home, "tcp", "192.168.9.1:8080", "a 192.168.9.1"},
		{home, "tcp", "[fd99::1]:8080", "a fd99::1"},
	} {
		nettest.Same(t, c.network+" to "+c.to, c.from.Ask(c.network, c.to), c.want)
	}
	if got := home.Ask("tcp", "10.244.7.1:9090"); !strings.Contains(got, "refused") {
		t.Errorf("a host port of one address of the node is open on another: %s", got)
	}
	// Servers on the node's loopback interface are not reachable for Pods, although route_localnet is set for the bridge.
	home.Listen("tcp", "127.0.0.1:22", "secret")
	a.Do(func() {
		lo, _ := netlink.LinkByName("lo")
		_ = netlink.AddrDel(lo, &netlink.Addr{IPNet: interfaces.IPNet(netip.MustParsePrefix("127.0.0.1/8"))})
		_ = sysctl("net/ipv4/conf/all/route_localnet", "1")
		if err := netlink.RouteAdd(&netlink.Route{Dst: interfaces.IPNet(netip.MustParsePrefix("127.0.0.0/8")),
			Gw: netip.MustParseAddr("10.244.7.1").AsSlice()}); err != nil {
			t.Error(err)
		}
	})
	if !a.Silent("tcp", "127.0.0.1:22") {
		t.Error("a Pod reaches the node's loopback")
	}
	// The host ports of a deleted Pod are closed.
	x.mustCall(cni.Del, "a", a.NS, nil)
	if got := outside.Ask("tcp", "192.168.9.1:8080"); !strings.Contains(got, "refused") {
		t.Errorf("the host port of a deleted Pod answers: %s", got)
	}
}

func TestDeleteIsRepeatable(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	a := x.addPod("a", ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80}))
	x.mustCall(cni.Check, "a", a.NS, nil)
	x.mustCall(cni.Del, "a", a.NS, nil)
	x.mustCall(cni.Del, "a", a.NS, nil)
	x.mustCall(cni.Del, "a", nil, nil)
	x.mustCall(cni.Del, "never", nil, nil)
	if _, err := x.call(cni.Check, "a", a.NS, nil); err == nil || !strings.Contains(err.Error(), `"code":3`) {
		t.Errorf("CHECK of a deleted attachment: %v", err)
	}
	// The same container in the same namespace again, before the old interface is gone.
	if _, err := x.call(cni.Add, "a", a.NS, ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80})); err != nil {
		t.Fatal(err)
	}
	x.mustCall(cni.Check, "a", a.NS, nil)
	x.n.drain.flush(time.Now())
	x.mustCall(cni.Check, "a", a.NS, nil)
	// And a second ADD of an existing attachment.
	if _, err := x.call(cni.Add, "a", a.NS, nil); err != nil {
		t.Fatal(err)
	}
	x.mustCall(cni.Check, "a", a.NS, nil)
	x.n.drain.flush(time.Now())
	x.mustCall(cni.Check, "a", a.NS, nil)
	if n := len(x.n.pool.all()); n != 1 {
		t.Errorf("%d addresses are in use by one container", n)
	}
	x.mustCall(cni.Status, "", nil, nil)
	b := x.addPod("b", nil)
	x.mustCall(cni.GC, "", nil, map[string]any{"valid": []cni.Attachment{{ContainerID: "b", IfName: "eth0"}}})
	x.mustCall(cni.Check, "b", b.NS, nil)
	if _, err := x.call(cni.Check, "a", a.NS, nil); err == nil {
		t.Error("GC left an attachment that is not valid")
	}
}

func TestConcurrentAddAndDelete(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	var wg sync.WaitGroup
	var mu sync.Mutex
	seen := map[string]bool{}
	for i := range 50 {
		wg.Go(func() {
			p, err := x.tryAddPod(fmt.Sprintf("c%d", i), nil)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if seen[p.v4] || seen[p.v6] {
				t.Errorf("%s or %s was assigned twice", p.v4, p.v6)
			}
			seen[p.v4], seen[p.v6] = true, true
		})
	}
	wg.Wait()
	for i := range 50 {
		wg.Go(func() {
			if _, err := x.call(cni.Del, fmt.Sprintf("c%d", i), nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	x.n.drain.flush(time.Now())
	if remaining, _ := os.ReadDir(filepath.Join(x.conf.folder(), "addresses")); len(remaining) != 0 {
		t.Errorf("%d addresses are left", len(remaining))
	}
}

func TestRestartKeepsPods(t *testing.T) {
	c := dualStack(t.TempDir())
	x := startNode(t, c)
	a := x.addPod("a", ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80}))
	b, gone := x.addPod("b", nil), x.addPod("gone", nil)
	a.Listen("tcp", ":80", "a")
	home := nettest.Home(t)
	established, err := home.Dial("tcp", "127.0.0.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer established.Close()
	nettest.Same(t, "before", nettest.Question(established), "a 10.244.7.1")
	x.stop()
	// Without an agent, the plugin tells the runtime to try again.
	if _, err := x.call(cni.Add, "early", b.NS, nil); err == nil || !strings.Contains(err.Error(), `"code":11`) {
		t.Errorf("without an agent: %v", err)
	}
	nettest.Same(t, "while the agent is down", nettest.Question(established), "a 10.244.7.1")
	// A process that was killed in the middle of an ADD leaves an address without an interface.
	unfinished := &record{ContainerID: "half", IfName: "eth0", Since: time.Now()}
	if err := x.n.pool.reserve(unfinished); err != nil {
		t.Fatal(err)
	}
	x.start()
	nettest.Same(t, "after", nettest.Question(established), "a 10.244.7.1")
	nettest.Same(t, "new connection", home.Ask("tcp", "127.0.0.1:8080"), "a 10.244.7.1")
	nettest.Same(t, "Pods", b.Ask("tcp", nettest.At(a.v4, 80)), "a "+b.v4)
	if x.n.pool.get(unfinished.key()) != nil {
		t.Error("an address without an interface was kept")
	}
	d := x.addPod("d", nil)
	for _, other := range []*pod{a, b, gone} {
		if d.v4 == other.v4 {
			t.Errorf("%s was assigned again", d.v4)
		}
	}
	// With Live set, the runtime decides which attachments exist.
	x.n.Live = func(context.Context) (map[string]bool, error) {
		return map[string]bool{"a": true, "b": true, "d": true}, nil
	}
	old := *x.n.pool.get(cni.Attachment{ContainerID: "gone", IfName: "eth0"})
	old.Since = time.Now().Add(-time.Hour)
	if err := x.n.pool.replace(x.n.pool.get(old.key()), &old); err != nil {
		t.Fatal(err)
	}
	x.n.Reclaim(t.Context())
	if x.n.pool.get(old.key()) != nil || x.n.pool.get(cni.Attachment{ContainerID: "a", IfName: "eth0"}) == nil {
		t.Error("the wrong addresses were reclaimed")
	}
}

func TestNoAddressIsFree(t *testing.T) {
	c := dualStack(t.TempDir())
	c.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.7.0/29")}
	x := startNode(t, c)
	for i := range 5 {
		x.addPod(fmt.Sprint("c", i), nil)
	}
	_, err := x.tryAddPod("c5", nil)
	if err == nil || !strings.Contains(err.Error(), "all addresses of [10.244.7.0/29] are in use") {
		t.Fatalf("the sixth Pod in a network for five: %v", err)
	}
	x.mustCall(cni.Del, "c3", nil, nil)
	x.addPod("c6", nil)
}

// TestPodsCannotSpoof lets a Pod send ARP replies for another Pod and for the gateway, and IPv6 router advertisements.
func TestPodsCannotSpoof(t *testing.T) {
	c := dualStack(t.TempDir())
	x := startNode(t, c)
	victim, client, attacker := x.addPod("victim", nil), x.addPod("client", nil), x.addPod("attacker", nil)
	victim.Listen("tcp", ":80", "victim")
	attacker.Listen("tcp", ":80", "attacker")
	// The neighbor tables have entries, and accept changes at once.
	_ = sysctl("net/ipv4/neigh/tp0/locktime", "0")
	client.Do(func() { _ = sysctl("net/ipv4/neigh/eth0/locktime", "0") })
	nettest.Same(t, "from a Pod", client.Ask("tcp", nettest.At(victim.v4, 80)), "victim "+client.v4)
	nettest.Same(t, "from the node", nettest.Home(t).Ask("tcp", nettest.At(victim.v4, 80)), "victim 10.244.7.1")
	attacker.Do(func() {
		sendARPReply(t, victim.v4, hardwareAddress(netip.MustParseAddr(attacker.v4)))
		sendARPReply(t, "10.244.7.1", hardwareAddress(netip.MustParseAddr(attacker.v4)))
		// With the victim's hardware address too.
		sendARPReply(t, victim.v4, hardwareAddress(netip.MustParseAddr(victim.v4)))
		advertise(t)
	})
	bridge, err := netlink.LinkByName("tp0")
	if err != nil {
		t.Fatal(err)
	}
	checkNeighbors := func(who string, link int, ip string, want net.HardwareAddr) {
		t.Helper()
		list, err := netlink.NeighList(link, netlink.FAMILY_V4)
		if err != nil {
			t.Error(err)
		}
		for _, n := range list {
			if n.IP.String() == ip && n.HardwareAddr.String() != want.String() {
				t.Errorf("in the neighbor table of %s, %s is at %s", who, ip, n.HardwareAddr)
			}
		}
	}
	checkNeighbors("the node", bridge.Attrs().Index, victim.v4, hardwareAddress(netip.MustParseAddr(victim.v4)))
	client.Do(func() {
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			t.Error(err)
			return
		}
		checkNeighbors("a Pod", eth.Attrs().Index, "10.244.7.1", hardwareAddress(netip.MustParseAddr("10.244.7.1")))
	})
	port, err := netlink.LinkByName(x.n.pool.get(cni.Attachment{ContainerID: "victim", IfName: "eth0"}).HostIf)
	if err != nil {
		t.Fatal(err)
	}
	fdb, err := netlink.NeighList(0, unix.AF_BRIDGE)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range fdb {
		if p.HardwareAddr.String() == hardwareAddress(netip.MustParseAddr(victim.v4)).String() && p.LinkIndex != port.Attrs().Index {
			t.Errorf("in the forwarding table of the bridge the victim is at port %d", p.LinkIndex)
		}
	}
	nettest.Same(t, "from a Pod", client.Ask("tcp", nettest.At(victim.v4, 80)), "victim "+client.v4)
	nettest.Same(t, "from the node", nettest.Home(t).Ask("tcp", nettest.At(victim.v4, 80)), "victim 10.244.7.1")
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Gw != nil || r.Dst != nil && r.Dst.String() == "fd66::/64" {
			t.Errorf("the node has accepted a route of a Pod: %v", r)
		}
	}
}

// sendARPReply broadcasts ARP replies with the hardware address of an IP address.
func sendARPReply(t *testing.T, ip string, mac net.HardwareAddr) {
	addr, all := netip.MustParseAddr(ip).AsSlice(), []byte{255, 255, 255, 255, 255, 255}
	for range 3 {
		sendFrame(t, func(net.HardwareAddr) []byte {
			return slices.Concat(all, mac, []byte{8, 6, 0, 1, 8, 0, 6, 4, 0, 2}, mac, addr, all, addr)
		})
	}
}

// advertise sends an IPv6 router advertisement with a prefix, valid for half an hour.
func advertise(t *testing.T) {
	conn, err := net.ListenPacket("ip6:ipv6-icmp", "::")
	if err != nil {
		t.Error(err)
		return
	}
	defer conn.Close()
	raw, err := conn.(*net.IPConn).SyscallConn()
	if err != nil {
		t.Error(err)
		return
	}
	_ = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255) })
	prefix := netip.MustParseAddr("fd66::").AsSlice()
	ra := slices.Concat([]byte{134, 0, 0, 0, 64, 0, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0},
		[]byte{3, 4, 64, 0xc0, 0, 0, 0x07, 0x08, 0, 0, 0x07, 0x08, 0, 0, 0, 0}, prefix)
	if _, e := conn.WriteTo(ra, &net.IPAddr{IP: net.ParseIP("ff02::1"), Zone: "eth0"}); e != nil || err != nil {
		t.Error(e, err)
	}
}

func TestRemovedRulesAreRestored(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	a := x.addPod("a", ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80}))
	a.Listen("tcp", ":80", "a")
	home := nettest.Home(t)
	if err := x.n.rules.kernel.Remove(x.conf.Table); err != nil {
		t.Fatal(err)
	}
	if got := home.Ask("tcp", "127.0.0.1:8080"); !strings.Contains(got, "refused") {
		t.Fatalf("the rules are still there: %s", got)
	}
	x.mustCall(cni.Del, "other", nil, nil)
	x.n.repairRules()
	nettest.Same(t, "after", home.Ask("tcp", "127.0.0.1:8080"), "a 10.244.7.1")
	x.mustCall(cni.Del, "a", a.NS, nil)
	if got := home.Ask("tcp", "127.0.0.1:8080"); !strings.Contains(got, "refused") {
		t.Errorf("the host port of a deleted Pod answers: %s", got)
	}
	// A Pod that is added before the agent has noticed that the rules are missing gets its host ports.
	if err := x.n.rules.kernel.Remove(x.conf.Table); err != nil {
		t.Fatal(err)
	}
	b := x.addPod("b", ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80}))
	b.Listen("tcp", ":80", "b")
	nettest.Same(t, "at once", home.Ask("tcp", "127.0.0.1:8080"), "b 10.244.7.1")
}

func TestBadRequests(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	ns := nettest.New(t)
	x.addPod("taken", ports(cni.PortMapping{HostPort: 81, ContainerPort: 80}))
	for _, c := range []struct {
		runtime map[string]any
		ns      *nettest.NS
		want    string
	}{
		{ports(cni.PortMapping{HostPort: 80, ContainerPort: 80, Protocol: "SCTP"}), ns, "SCTP is not supported"},
		{ports(cni.PortMapping{HostPort: 80, ContainerPort: 80, Protocol: "quic"}), ns, "is not TCP or UDP"},
		{ports(cni.PortMapping{HostPort: 70000, ContainerPort: 80}), ns, "from 1 to 65535"},
		{ports(cni.PortMapping{HostPort: 80, ContainerPort: 80, HostIP: "here"}), ns, "is not an IP address"},
		{ports(cni.PortMapping{HostPort: 81, ContainerPort: 80}), ns, "in use by container taken"},
		{map[string]any{"bandwidth": cni.Bandwidth{IngressRate: 7}}, ns, "too little"},
		{nil, nettest.Home(t), "the node's own network namespace"},
	} {
		if _, err := x.call(cni.Add, "bad", c.ns, c.runtime); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
	x.n.drain.flush(time.Now())
	if n := len(x.n.pool.all()); n != 1 {
		t.Errorf("%d addresses are in use after invalid requests only", n)
	}
}

func TestBandwidth(t *testing.T) {
	x := startNode(t, dualStack(t.TempDir()))
	a := x.addPod("a", map[string]any{"bandwidth": cni.Bandwidth{IngressRate: 8 << 20, IngressBurst: 1 << 31, EgressRate: 8 << 20,
		EgressBurst: 1 << 31}})
	b := x.addPod("b", nil)
	a.Listen("tcp", ":80", "a")
	nettest.Same(t, "limited, but connected", b.Ask("tcp", nettest.At(a.v4, 80)), "a "+b.v4)
	r := x.n.pool.get(cni.Attachment{ContainerID: "a", IfName: "eth0"})
	for _, name := range []string{r.HostIf, ifbName(r.HostIf)} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		queues, err := netlink.QdiscList(link)
		if err != nil {
			t.Fatal(err)
		}
		tbf, ok := queues[0].(*netlink.Tbf)
		if !ok || tbf.Rate != 1<<20 {
			t.Errorf("%s has the queue %+v", name, queues[0])
		}
	}
	x.mustCall(cni.Del, "a", nil, nil)
	x.n.drain.flush(time.Now())
	if _, err := netlink.LinkByName(ifbName(r.HostIf)); !interfaces.IsNotFound(err) {
		t.Error("the device of a deleted Pod is left")
	}
}

func TestPurgeLeavesNothing(t *testing.T) {
	nettest.Need(t)
	before := machineState(t)
	c := dualStack(t.TempDir())
	x := &testNode{t: t, conf: c, confDir: t.TempDir()}
	x.start()
	x.addPod("a", ports(cni.PortMapping{HostPort: 8080, ContainerPort: 80}))
	x.addPod("b", map[string]any{"bandwidth": cni.Bandwidth{EgressRate: 8 << 20}})
	x.stop()
	for range 2 {
		if err := Purge(c); err != nil {
			t.Fatal(err)
		}
	}
	nettest.Same(t, "the machine", machineState(t), before)
	for _, dir := range []string{c.folder(), filepath.Join(x.confDir, confName)} {
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s is left", dir)
		}
	}
}

// machineState returns everything that a network may leave behind: interfaces, rules, sysctls.
func machineState(t *testing.T) string {
	var out strings.Builder
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		fmt.Fprintln(&out, l.Attrs().Name)
	}
	for _, f := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		raw, _ := os.ReadFile("/proc/sys/net/" + f)
		fmt.Fprint(&out, string(raw))
	}
	if nft, err := exec.LookPath("nft"); err == nil {
		raw, _ := exec.Command(nft, "list", "ruleset").CombinedOutput()
		out.Write(raw)
	}
	return out.String()
}
