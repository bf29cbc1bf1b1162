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

	"proa.dev/network/cni"
	"proa.dev/network/nettest"
	"proa.dev/network/podnetwork"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

// node is a node with a bridge, Pods, a network outside, and the proxy.
type node struct {
	*views
	net     *podnetwork.Network
	home    *nettest.NS
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

func newNode(t testing.TB) *node { return newNodeVia(t, "192.168.9.2", "fd99::2") }

// newNodeVia returns a node with default routes through these gateways; without any it has no default route.
func newNodeVia(t testing.TB, via ...string) *node {
	t.Helper()
	nettest.Need(t)
	n := &node{views: newViews(t), home: nettest.Home(t), outside: nettest.New(t)}
	nettest.Wire(t, nettest.End{NS: n.home, Name: "out0", Addrs: []string{"192.168.9.1/24", "fd99::1/64"}, Via: via},
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
		if err := Purge("proa-test-services"); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) start() {
	n.startWith(Config{
		NodeName: "here", Services: n.services, Slices: n.slices, Nodes: n.nodes, ClusterCIDRs: clusterCIDRs, ServiceCIDRs: serviceCIDRs,
		ExternalIPs: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/32")},
		Balancers:   []netip.Prefix{netip.MustParsePrefix("203.0.113.5/32")}, ReservedPorts: []uint16{10250},
		Table: "proa-test-services", Log: slog.New(slog.NewTextHandler(n.t.Output(), nil)),
	})
}

func (n *node) startWith(c Config) {
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

func (n *node) stop() {
	n.cancel()
	<-n.done
}

// backend is a Pod that answers.
type backend struct {
	*nettest.NS
	v4, v6 string
}

func (n *node) backend(name string) backend {
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

// eventually waits until asking gives the answer: rules follow objects after a moment.
func (n *node) eventually(what string, ask func() string, want string) {
	n.t.Helper()
	var got string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if got = ask(); got == want {
			n.home.Readable(n.t)
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

func kindOf(answer string) string {
	switch {
	case strings.Contains(answer, "refused"), strings.Contains(answer, "not permitted"): // the second is how the node itself learns it
		return "refused"
	case strings.Contains(answer, "timeout"):
		return "silence"
	}
	return answer
}

func TestClusterIP(t *testing.T) {
	n := newNode(t)
	a, b, c := n.backend("a"), n.backend("b"), n.backend("client")
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
		n.eventually(low+" from the node", func() string { return n.home.Ask(low, "10.96.0.10:8080") }, "a 10.244.7.1")
		n.eventually(low+" from the node, IPv6", func() string { return n.home.Ask(low, "[fd00:96::10]:8080") }, "a fd00:244:7::1")
		n.eventually(low+" from outside", func() string { return n.outside.Ask(low, "10.96.0.10:8080") }, "a 10.244.7.1")
		n.eventually(low+" from itself", func() string { return a.Ask(low, "10.96.0.10:8080") }, "a 10.244.7.1")
		n.eventually(low+" from itself, IPv6", func() string { return a.Ask(low, "[fd00:96::10]:8080") }, "a fd00:244:7::1")
		n.eventually(low+" to another port", func() string { return kindOf(c.Ask(low, "10.96.0.10:9")) }, "refused")
		// Another endpoint takes over, then there is none, then there is one again.
		n.apply(slice(low+"-4", low, 80, protocol, b.v4+" here"))
		n.eventually(low+" moves", func() string { return c.Ask(low, "10.96.0.10:8080") }, "b "+c.v4)
		n.apply(slice(low+"-4", low, 80, protocol, a.v4+" here unready"))
		n.eventually(low+" without endpoints", func() string { return kindOf(c.Ask(low, "10.96.0.10:8080")) }, "refused")
		n.eventually(low+" without endpoints, node", func() string { return kindOf(n.home.Ask(low, "10.96.0.10:8080")) }, "refused")
		n.apply(slice(low+"-4", low, 80, protocol, a.v4+" here terminating"))
		n.eventually(low+" while it ends", func() string { return c.Ask(low, "10.96.0.10:8080") }, "a "+c.v4)
		n.services.Remove("default", low)
		if low == "tcp" {
			n.eventually("gone", func() string { return kindOf(c.Ask(low, "10.96.0.10:8080")) }, "silence")
		}
	}
}

// TestRejectIsImmediate connects to a Service without endpoints from a Pod and from the node: TCP is refused by the
// first packet, and not retried after a second, as after an ICMP error that arrives while the socket is still sending.
func TestRejectIsImmediate(t *testing.T) {
	n := newNode(t)
	c := n.backend("client")
	n.apply("kind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, \"fd00:96::10\"], ports: [{port: 80}]}\n")
	for _, to := range []string{"10.96.0.10:80", "[fd00:96::10]:80"} {
		n.eventually(to, func() string { return kindOf(c.Ask("tcp", to)) }, "refused")
		n.eventually(to+" from the node", func() string { return kindOf(n.home.Ask("tcp", to)) }, "refused")
		for _, from := range []*nettest.NS{c.NS, n.home} {
			silent := true
			for range 5 { // one that is quick is enough: the machine may be busy
				silent = silent && from.Silent("tcp", to)
			}
			if silent {
				t.Errorf("TCP to %s is not refused by the first packet", to)
			}
		}
		n.eventually(to+" by UDP", func() string { return kindOf(c.Ask("udp", to)) }, "refused")
	}
}

func TestNoWayOut(t *testing.T) {
	n := newNodeVia(t)
	a := n.backend("a")
	n.apply(`
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::10"], ports: [{port: 80}]}
---
` + slice("web-4", "web", 80, "TCP", a.v4+" here") + "\n---\n" + slice("web-6", "web", 80, "TCP", a.v6+" here"))
	n.eventually("the node itself", func() string { return n.home.Ask("tcp", "10.96.0.10:80") }, "a 10.244.7.1")
	n.eventually("the node itself, IPv6", func() string { return n.home.Ask("tcp", "[fd00:96::10]:80") }, "a fd00:244:7::1")
	n.eventually("nobody has the address", func() string { return kindOf(n.home.Ask("tcp", "10.96.0.99:80")) }, "silence")
}

func TestSpread(t *testing.T) {
	n := newNode(t)
	a, b, c := n.backend("a"), n.backend("b"), n.backend("client")
	n.apply(`
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
---
` + slice("web-1", "web", 80, "TCP", a.v4+" here", b.v4+" here"))
	n.eventually("it", func() string { return strings.Fields(c.Ask("tcp", "10.96.0.10:80") + " x")[1] }, c.v4)
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
	list := []backend{n.backend("a"), n.backend("b"), n.backend("c")}
	client := n.backend("client")
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
		stays := func(when string) {
			t.Helper()
			for range 20 {
				nettest.Same(t, addr+" "+when, client.Ask("tcp", addr), first)
			}
		}
		stays("at once")
		n.stop()
		n.start()
		n.apply("kind: Service\nmetadata: {name: other}\nspec: {clusterIP: 10.96.0.11, ports: [{port: 80}]}\n")
		n.eventually("another process", func() string { return kindOf(client.Ask("tcp", "10.96.0.11:80")) }, "refused")
		stays("after another process took over")
		// The endpoint goes: another is chosen, and stays.
		keep, text := v4, "web-4"
		if strings.Contains(addr, "fd00") {
			keep, text = v6, "web-6"
		}
		var rest []string
		for i, b := range list {
			if !strings.HasPrefix(first, string(rune('a'+i))) {
				_ = b
				rest = append(rest, keep[i])
			}
		}
		n.apply(slice(text, "web", 80, "TCP", rest...))
		n.eventually("it left", func() string { return fmt.Sprint(client.Ask("tcp", addr)[0] != first[0]) }, "true")
		first = client.Ask("tcp", addr)
		stays("after the first was gone")
	}
}

func TestFromOutside(t *testing.T) {
	n := newNode(t)
	a, c := n.backend("a"), n.backend("client")
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
		n.eventually(to, func() string { return kindOf(from.Ask("tcp", to)) }, want)
	}
	for _, to := range []string{"192.168.9.1:30080", "203.0.113.5:80", "203.0.113.7:80"} {
		check(n.outside, to, "a 10.244.7.1")
		check(c.NS, to, "a 10.244.7.1")
		check(a.NS, to, "a 10.244.7.1")
		check(n.home, to, "a 10.244.7.1")
	}
	check(n.outside, "[fd99::1]:30080", "a fd00:244:7::1")
	check(n.home, "127.0.0.1:30080", "refused")

	n.apply(service("Local", ""))
	for _, to := range []string{"192.168.9.1:30080", "203.0.113.5:80", "203.0.113.7:80"} {
		check(n.outside, to, "a 192.168.9.2")
		check(c.NS, to, "a "+c.v4)
		check(n.home, to, "a 10.244.7.1")
	}
	check(n.outside, "[fd99::1]:30080", "a fd99::2")

	// Somebody else has the endpoints: from outside nobody answers, but the node and its Pods may go there.
	n.apply(slice("web-4", "web", 80, "TCP", a.v4+" there"))
	for _, to := range []string{"192.168.9.1:30080", "203.0.113.5:80"} {
		check(n.outside, to, "silence")
		check(c.NS, to, "a "+c.v4)
		check(n.home, to, "a 10.244.7.1")
	}
	n.apply(service("Cluster", ", loadBalancerSourceRanges: [192.168.9.0/30, 10.0.0.0/8]"))
	check(n.outside, "203.0.113.5:80", "a 10.244.7.1")
	n.apply(service("Cluster", ", loadBalancerSourceRanges: [192.168.9.128/25]"))
	check(n.outside, "203.0.113.5:80", "silence")
	check(n.outside, "203.0.113.7:80", "a 10.244.7.1")
	check(n.outside, "192.168.9.1:30080", "a 10.244.7.1")
}

func TestUDPFollows(t *testing.T) {
	n := newNode(t)
	a, b, c := n.backend("a"), n.backend("b"), n.backend("client")
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
	n.eventually("nobody yet", func() string { return kindOf(ask()) }, "refused")
	n.apply(slice("dns-1", "dns", 80, "UDP", a.v4+" here"))
	n.eventually("the same stream", ask, "a "+c.v4)
	n.apply(slice("dns-1", "dns", 80, "UDP", b.v4+" here"))
	n.eventually("the same stream moves", ask, "b "+c.v4)
	n.apply(slice("dns-1", "dns", 80, "UDP", b.v4+" here", a.v4+" here"))
	for range 10 {
		nettest.Same(t, "a stream stays", ask(), "b "+c.v4)
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
		t.Skip("curl is not here")
	}
	body := func(n int, code string) string {
		return fmt.Sprintf("{\n\t\"service\": {\n\t\t\"namespace\": \"default\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": true\n}%s", n, code)
	}
	n.eventually("no endpoints", get, body(0, "503"))
	n.apply(slice("web-1", "web", 80, "TCP", "10.244.7.9 here", "10.244.8.9 there", "10.244.7.10 here"))
	n.eventually("two endpoints", get, body(2, "200"))
	n.services.Remove("default", "web")
	n.eventually("gone", get, "000")
}
