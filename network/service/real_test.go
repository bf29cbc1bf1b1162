package service

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"proa.dev/network/cni"
	"proa.dev/network/nettest"
	"proa.dev/network/podnetwork"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// testNode is a node with a bridge, Pods, an outside network, and the service proxy.
type testNode struct {
	*views
	net     *podnetwork.Network
	host    *nettest.NS
	outside *nettest.NS
	proxy   *Proxy
	cancel  context.CancelFunc
	done    chan struct{}
}

var (
	podCIDRs     = []netip.Prefix{netip.MustParsePrefix("10.244.7.0/24"), netip.MustParsePrefix("fd00:244:7::/64")}
	clusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
	serviceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
)

func newNode(t testing.TB) *testNode { return newNodeVia(t, "192.168.9.2", "fd99::2") }

// newNodeVia returns a node with default routes through these gateways; without any it has no default route.
func newNodeVia(t testing.TB, via ...string) *testNode {
	t.Helper()
	nettest.Need(t)
	n := &testNode{views: newViews(t), host: nettest.Home(t), outside: nettest.New(t)}
	nettest.Wire(t, nettest.End{NS: n.host, Name: "out0", Addrs: []string{"192.168.9.1/24", "fd99::1/64"}, Via: via},
		nettest.End{NS: n.outside, Name: "eth0", Addrs: []string{"192.168.9.2/24", "fd99::2/64"}, Via: []string{"192.168.9.1", "fd99::1"}})
	c := podnetwork.Config{DataDir: t.TempDir(), Bridge: "tp0", Table: "proa-test", PodCIDRs: podCIDRs, ClusterCIDRs: clusterCIDRs}
	var err error
	if n.net, err = podnetwork.New(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = n.net.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := podnetwork.Purge(c); err != nil {
			t.Error(err)
		}
		nettest.Unplug("out0")
	})
	n.apply("kind: Node\nmetadata: {name: here, labels: {topology.kubernetes.io/zone: z1}}\nstatus: {addresses: [{type: InternalIP, address: 192.168.9.1}]}\n")
	n.start()
	t.Cleanup(func() {
		n.stop()
		if err := Purge("proa-test-services", serviceCIDRs); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *testNode) start() {
	n.startWith(Config{
		NodeName: "here", Services: n.services, Slices: n.slices, Nodes: n.nodes, ClusterCIDRs: clusterCIDRs, ServiceCIDRs: serviceCIDRs,
		ExternalIPs: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32")},
		Balancers:   []netip.Prefix{netip.MustParsePrefix("203.0.113.5/32")}, ReservedPorts: []uint16{10250},
		Table: "proa-test-services", Log: slog.New(slog.NewTextHandler(n.t.Output(), nil)),
	})
}

func (n *testNode) startWith(c Config) {
	var err error
	n.proxy, err = New(c)
	if err != nil {
		n.t.Fatal(err)
	}
	var ctx context.Context
	ctx, n.cancel = context.WithCancel(n.t.Context())
	n.done = make(chan struct{})
	go func() {
		defer close(n.done)
		if err := n.proxy.Run(ctx); err != nil {
			n.t.Error(err)
		}
	}()
}

func (n *testNode) stop() {
	n.cancel()
	<-n.done
}

// backend is a Pod that answers with its name.
type backend struct {
	*nettest.NS
	v4, v6 string
}

func (n *testNode) addBackend(name string) backend {
	n.t.Helper()
	ns := nettest.New(n.t)
	f, err := os.Open(ns.Path())
	if err != nil {
		n.t.Fatal(err)
	}
	defer f.Close()
	r, err := n.net.CNI(n.t.Context(), &cni.Request{Command: cni.Add, ContainerID: name, IfName: "eth0", NetNS: ns.Path()}, &cni.Config{},
		f)
	if err != nil {
		n.t.Fatal(err)
	}
	b := backend{ns, r.Addresses[0].Address.Addr().String(), r.Addresses[1].Address.Addr().String()}
	for _, network := range []string{"tcp", "udp"} {
		b.Listen(network, ":80", name)
	}
	return b
}

// eventually waits until ask returns want, because rules follow objects after a moment.
func (n *testNode) eventually(what string, ask func() string, want string) {
	n.t.Helper()
	var got string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if got = ask(); got == want {
			n.host.Readable(n.t)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	n.t.Errorf("%s: got %q, want %q", what, got, want)
	if nft, err := exec.LookPath("nft"); err == nil && os.Getenv("SHOW") != "" {
		raw, _ := exec.Command(nft, "list", "table", "inet", "proa-test-services").CombinedOutput()
		n.t.Log(string(raw))
	}
}

// outcome returns "refused" or "no answer" for errors, and other answers as they are.
func outcome(answer string) string {
	switch {
	case strings.Contains(answer, "refused"), strings.Contains(answer, "not permitted"): // the second is the error on the node
		return "refused"
	case strings.Contains(answer, "timeout"):
		return "no answer"
	}
	return answer
}

func TestClusterIP(t *testing.T) {
	n := newNode(t)
	a, b, c := n.addBackend("a"), n.addBackend("b"), n.addBackend("client")
	for _, protocol := range []string{"TCP", "UDP"} {
		low := strings.ToLower(protocol)
		n.apply(fmt.Sprintf(`
kind: Service
metadata: {name: %s}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::10"], ports: [{port: 8080, protocol: %s}]}
---
%s
---
%s`, low, protocol, slice(low+"-4", low, 80, protocol, a.v4+" here"), slice(low+"-6", low, 80, protocol, a.v6+" here")))
		for _, q := range []struct{ name, got, to, want string }{
			{"Pod", "", "10.96.0.10:8080", "a " + c.v4},
			{"Pod, IPv6", "", "[fd00:96::10]:8080", "a " + c.v6},
		} {
			n.eventually(low+" from a "+q.name, func() string { return c.Ask(low, q.to) }, q.want)
		}
		n.eventually(low+" from the node", func() string { return n.host.Ask(low, "10.96.0.10:8080") }, "a 10.244.7.1")
		n.eventually(low+" from the node, IPv6", func() string { return n.host.Ask(low, "[fd00:96::10]:8080") }, "a fd00:244:7::1")
		n.eventually(low+" from outside", func() string { return n.outside.Ask(low, "10.96.0.10:8080") }, "a 10.244.7.1")
		n.eventually(low+" from itself", func() string { return a.Ask(low, "10.96.0.10:8080") }, "a 10.244.7.1")
		n.eventually(low+" from itself, IPv6", func() string { return a.Ask(low, "[fd00:96::10]:8080") }, "a fd00:244:7::1")
		n.eventually(low+" to another port", func() string { return outcome(c.Ask(low, "10.96.0.10:9")) }, "refused")
		// Another endpoint takes over, then there is none, then there is one again.
		n.apply(slice(low+"-4", low, 80, protocol, b.v4+" here"))
		n.eventually(low+" with another endpoint", func() string { return c.Ask(low, "10.96.0.10:8080") }, "b "+c.v4)
		n.apply(slice(low+"-4", low, 80, protocol, a.v4+" here unready"))
		n.eventually(low+" without endpoints", func() string { return outcome(c.Ask(low, "10.96.0.10:8080")) }, "refused")
		n.eventually(low+" without endpoints, node", func() string { return outcome(n.host.Ask(low, "10.96.0.10:8080")) }, "refused")
		n.apply(slice(low+"-4", low, 80, protocol, a.v4+" here terminating"))
		n.eventually(low+" with a terminating endpoint", func() string { return c.Ask(low, "10.96.0.10:8080") }, "a "+c.v4)
		n.services.Remove("default", low)
		if low == "tcp" {
			n.eventually("the Service is deleted", func() string { return outcome(c.Ask(low, "10.96.0.10:8080")) }, "no answer")
		}
	}
}

// TestRejectIsImmediate connects to a Service without endpoints from a Pod and from the node: TCP is refused by the
// first packet, and not retried after a second, as after an ICMP error that arrives while the socket is still sending.
func TestRejectIsImmediate(t *testing.T) {
	n := newNode(t)
	c := n.addBackend("client")
	n.apply("kind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, \"fd00:96::10\"], ports: [{port: 80}]}\n")
	for _, to := range []string{"10.96.0.10:80", "[fd00:96::10]:80"} {
		n.eventually(to, func() string { return outcome(c.Ask("tcp", to)) }, "refused")
		n.eventually(to+" from the node", func() string { return outcome(n.host.Ask("tcp", to)) }, "refused")
		for _, from := range []*nettest.NS{c.NS, n.host} {
			silent := true
			for range 5 { // one quick answer is enough, because the machine may be busy
				silent = silent && from.Silent("tcp", to)
			}
			if silent {
				t.Errorf("TCP to %s is not refused by the first packet", to)
			}
		}
		n.eventually(to+" by UDP", func() string { return outcome(c.Ask("udp", to)) }, "refused")
	}
}

func TestNodeWithoutDefaultRoute(t *testing.T) {
	n := newNodeVia(t)
	a := n.addBackend("a")
	n.apply(`
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::10"], ports: [{port: 80}]}
---
` + slice("web-4", "web", 80, "TCP", a.v4+" here") + "\n---\n" + slice("web-6", "web", 80, "TCP", a.v6+" here"))
	n.eventually("the node itself", func() string { return n.host.Ask("tcp", "10.96.0.10:80") }, "a 10.244.7.1")
	n.eventually("the node itself, IPv6", func() string { return n.host.Ask("tcp", "[fd00:96::10]:80") }, "a fd00:244:7::1")
	n.eventually("an address of no Service", func() string { return outcome(n.host.Ask("tcp", "10.96.0.99:80")) }, "no answer")
}

func TestConnectionsAreSpread(t *testing.T) {
	n := newNode(t)
	a, b, c := n.addBackend("a"), n.addBackend("b"), n.addBackend("client")
	n.apply(`
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
` + slice("web-1", "web", 80, "TCP", a.v4+" here", b.v4+" here"))
	n.eventually("the Service is served", func() string { return strings.Fields(c.Ask("tcp", "10.96.0.10:80") + " x")[1] }, c.v4)
	seen := map[string]int{}
	for range 60 {
		seen[c.Ask("tcp", "10.96.0.10:80")]++
	}
	if seen["a "+c.v4] < 10 || seen["b "+c.v4] < 10 {
		t.Errorf("60 connections went to %v", seen)
	}
}

func TestAffinity(t *testing.T) {
	n := newNode(t)
	list := []backend{n.addBackend("a"), n.addBackend("b"), n.addBackend("c")}
	client := n.addBackend("client")
	var v4, v6 []string
	for _, b := range list {
		v4, v6 = append(v4, b.v4+" here"), append(v6, b.v6+" here")
	}
	n.apply(`
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::10"], ports: [{port: 80}], sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 100}}}
---
` + slice("web-4", "web", 80, "TCP", v4...) + "\n---\n" + slice("web-6", "web", 80, "TCP", v6...))
	for _, addr := range []string{"10.96.0.10:80", "[fd00:96::10]:80"} {
		n.eventually(addr, func() string { return fmt.Sprint(!strings.HasPrefix(client.Ask("tcp", addr), "error")) }, "true")
		first := client.Ask("tcp", addr)
		checkEndpoint := func(when string) {
			t.Helper()
			for range 20 {
				nettest.Same(t, addr+" "+when, client.Ask("tcp", addr), first)
			}
		}
		checkEndpoint("at once")
		n.stop()
		n.start()
		n.apply("kind: Service\nmetadata: {name: other}\nspec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}\n")
		n.eventually("the next process writes rules", func() string { return outcome(client.Ask("tcp", "10.96.0.11:80")) }, "refused")
		checkEndpoint("after a restart of the proxy")
		// When the endpoint is removed, another one is chosen and kept.
		endpoints, sliceName := v4, "web-4"
		if strings.Contains(addr, "fd00") {
			endpoints, sliceName = v6, "web-6"
		}
		var rest []string
		for i, b := range list {
			if !strings.HasPrefix(first, string(rune('a'+i))) {
				_ = b
				rest = append(rest, endpoints[i])
			}
		}
		n.apply(slice(sliceName, "web", 80, "TCP", rest...))
		n.eventually("another endpoint", func() string {
			answer := client.Ask("tcp", addr)
			return fmt.Sprint(!strings.HasPrefix(answer, "error") && answer != first)
		}, "true")
		first = client.Ask("tcp", addr)
		checkEndpoint("after the first was removed")
	}
}

func TestExternalTraffic(t *testing.T) {
	n := newNode(t)
	a, c := n.addBackend("a"), n.addBackend("client")
	service := func(policy, more string) string {
		return fmt.Sprintf(`
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::10"], ports: [{port: 80, nodePort: 30080}], externalTrafficPolicy: %s, externalIPs: [203.0.113.7]%s}
status: {loadBalancer: {ingress: [{ip: 203.0.113.5}]}}
---
`, policy, more)
	}
	n.apply(service("Cluster", "") + slice("web-4", "web", 80, "TCP", a.v4+" here") + "\n---\n" + slice("web-6", "web", 80, "TCP",
		a.v6+" here"))
	check := func(from *nettest.NS, to, want string) {
		t.Helper()
		n.eventually(to, func() string { return outcome(from.Ask("tcp", to)) }, want)
	}
	for _, to := range []string{"192.168.9.1:30080", "203.0.113.5:80", "203.0.113.7:80"} {
		check(n.outside, to, "a 10.244.7.1")
		check(c.NS, to, "a 10.244.7.1")
		check(a.NS, to, "a 10.244.7.1")
		check(n.host, to, "a 10.244.7.1")
	}
	check(n.outside, "[fd99::1]:30080", "a fd00:244:7::1")
	check(n.host, "127.0.0.1:30080", "refused")

	n.apply(service("Local", ""))
	for _, to := range []string{"192.168.9.1:30080", "203.0.113.5:80", "203.0.113.7:80"} {
		check(n.outside, to, "a 192.168.9.2")
		check(c.NS, to, "a "+c.v4)
		check(n.host, to, "a 10.244.7.1")
	}
	check(n.outside, "[fd99::1]:30080", "a fd99::2")

	// The endpoint is on another node: there is no answer from outside, but the node and its Pods may use it.
	n.apply(slice("web-4", "web", 80, "TCP", a.v4+" there"))
	for _, to := range []string{"192.168.9.1:30080", "203.0.113.5:80"} {
		check(n.outside, to, "no answer")
		check(c.NS, to, "a "+c.v4)
		check(n.host, to, "a 10.244.7.1")
	}
	n.apply(service("Cluster", ", loadBalancerSourceRanges: [192.168.9.0/30, 10.0.0.0/8]"))
	check(n.outside, "203.0.113.5:80", "a 10.244.7.1")
	n.apply(service("Cluster", ", loadBalancerSourceRanges: [192.168.9.128/25]"))
	check(n.outside, "203.0.113.5:80", "no answer")
	check(n.outside, "203.0.113.7:80", "a 10.244.7.1")
	check(n.outside, "192.168.9.1:30080", "a 10.244.7.1")
}

func TestUDPFlowsFollowEndpoints(t *testing.T) {
	n := newNode(t)
	a, b, c := n.addBackend("a"), n.addBackend("b"), n.addBackend("client")
	n.apply(`
kind: Service
metadata: {name: dns}
spec: {clusterIP: 10.96.0.10, ports: [{port: 53, protocol: UDP}]}
`)
	conn, err := c.Dial("udp", "10.96.0.10:53")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func() string { return nettest.Question(conn) }
	n.eventually("no endpoint", func() string { return outcome(ask()) }, "refused")
	n.apply(slice("dns-1", "dns", 80, "UDP", a.v4+" here"))
	n.eventually("the same flow with an endpoint", ask, "a "+c.v4)
	n.apply(slice("dns-1", "dns", 80, "UDP", b.v4+" here"))
	n.eventually("the same flow with another endpoint", ask, "b "+c.v4)
	n.apply(slice("dns-1", "dns", 80, "UDP", b.v4+" here", a.v4+" here"))
	for range 10 {
		nettest.Same(t, "the flow keeps its endpoint", ask(), "b "+c.v4)
	}
}

func TestHealthCheck(t *testing.T) {
	n := newNode(t)
	n.apply(`
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}], externalTrafficPolicy: Local, healthCheckNodePort: 32000}
`)
	get := func() string {
		out, _ := exec.Command("curl", "-s", "-m", "2", "-w", "%{http_code}", "http://192.168.9.1:32000/").Output()
		return string(out)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	body := func(n int, code string) string {
		return fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": true\n}%s", n, code)
	}
	n.eventually("no endpoints", get, body(0, "503"))
	n.apply(slice("web-1", "web", 80, "TCP", "10.244.7.9 here", "10.244.8.9 there", "10.244.7.10 here"))
	n.eventually("two endpoints", get, body(2, "200"))
	n.services.Remove("default", "web")
	n.eventually("the Service is deleted", get, "000")
}

// TestRemoveRoutesKeepsOtherClusters checks that the routes to the Services of another cluster stay.
func TestRemoveRoutesKeepsOtherClusters(t *testing.T) {
	nettest.Need(t)
	own, other := netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("10.97.0.0/16")
	nettest.New(t).Do(func() {
		lo, err := netlink.LinkByName("lo")
		if err == nil {
			err = netlink.LinkSetUp(lo)
		}
		if err == nil {
			err = ensureRoutes([]netip.Prefix{own, other})
		}
		if err != nil {
			t.Error(err)
			return
		}
		if err := RemoveRoutes([]netip.Prefix{own}); err != nil {
			t.Error(err)
		}
		left, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: routeProtocol}, netlink.RT_FILTER_PROTOCOL)
		if err != nil || len(left) != 1 || left[0].Dst.String() != other.String() {
			t.Errorf("the routes to Services are %v, %v", left, err)
		}
	})
}
