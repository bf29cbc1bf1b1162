package networkpolicy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/network/cni"
	"proa.dev/network/nettest"
	netpod "proa.dev/network/podnetwork"
	"proa.dev/network/service"
)

func TestMain(m *testing.M) { os.Exit(nettest.Main(m)) }

var (
	podCIDRs     = []netip.Prefix{netip.MustParsePrefix("10.244.7.0/24"), netip.MustParsePrefix("fd00:244:7::/64")}
	clusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}
	serviceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
)

const (
	testTable  = "proa-test-policies"
	dnsAddress = "10.96.0.10" // the address of the DNS server on the node
)

// testNode is node n1 in a real network namespace, with a bridge, Pods, Services, policies, and an outside network.
type testNode struct {
	t         *testing.T
	views     map[schema.GroupResource]*nettest.View
	host      *nettest.NS
	outside   *nettest.NS
	net       *netpod.Network
	guard     *Guard
	cidrs     []netip.Prefix
	stopGuard func()
}

func newTestNode(t *testing.T, cidrs ...netip.Prefix) *testNode {
	t.Helper()
	nettest.Need(t)
	if len(cidrs) == 0 {
		cidrs = podCIDRs
	}
	r := &testNode{t: t, host: nettest.Home(t), outside: nettest.New(t), cidrs: cidrs, views: map[schema.GroupResource]*nettest.View{}}
	for _, on := range []schema.GroupResource{gr.Pods, gr.Namespaces, gr.NetworkPolicies, gr.Services, gr.EndpointSlices, gr.Nodes} {
		r.views[on] = nettest.NewView()
	}
	nettest.Wire(t, nettest.End{NS: r.host, Name: "out0", Addrs: []string{"192.168.9.1/24", "fd99::1/64"},
		Via: []string{"192.168.9.2", "fd99::2"}},
		nettest.End{NS: r.outside, Name: "eth0", Addrs: []string{"192.168.9.2/24", "192.168.9.3/24", "fd99::2/64"},
			Via: []string{"192.168.9.1", "fd99::1"}})
	t.Cleanup(func() { nettest.Unplug("out0") })
	r.guard = r.newGuard("n1")
	r.startGuard()
	t.Cleanup(func() {
		r.stopGuard()
		if err := Purge(testTable); err != nil {
			t.Error(err)
		}
	})
	c := netpod.Config{DataDir: t.TempDir(), Bridge: "tp0", Table: "proa-test", PodCIDRs: cidrs, ClusterCIDRs: clusterCIDRs, Guard: r.guard}
	var err error
	if r.net, err = netpod.New(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	r.runInBackground(r.net.Serve)
	t.Cleanup(func() {
		if err := netpod.Purge(c); err != nil {
			t.Error(err)
		}
	})
	r.startServiceProxy()
	r.apply("kind: Namespace\nmetadata: {name: default}\n---\nkind: Namespace\nmetadata: {name: other, labels: {team: blue}}\n")
	return r
}

func (r *testNode) newGuard(node string) *Guard {
	r.t.Helper()
	g, err := New(Config{
		NodeName: node, Table: testTable, DNSAddresses: []netip.Addr{netip.MustParseAddr(dnsAddress)},
		Log:  slog.New(slog.NewTextHandler(r.t.Output(), nil)),
		Open: func(_ context.Context, on schema.GroupResource) (client.View, error) { return r.views[on], nil },
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

// startGuard runs the guard.
func (r *testNode) startGuard() {
	ctx, cancel := context.WithCancel(r.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.guard.Run(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	r.stopGuard = func() { cancel(); <-done }
}

// runInBackground runs a function until the test ends.
func (r *testNode) runInBackground(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			r.t.Error(err)
		}
	}()
	r.t.Cleanup(func() { cancel(); <-done })
}

// startServiceProxy runs the service proxy of the node.
func (r *testNode) startServiceProxy() {
	r.t.Helper()
	p, err := service.New(service.Config{
		NodeName: "n1", Services: r.views[gr.Services], Slices: r.views[gr.EndpointSlices], Nodes: r.views[gr.Nodes],
		ClusterCIDRs: clusterCIDRs,
		ServiceCIDRs: serviceCIDRs, Table: "proa-test-services", NodeAddresses: []netip.Addr{netip.MustParseAddr(dnsAddress)},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := service.Purge("proa-test-services", serviceCIDRs); err != nil {
			r.t.Error(err)
		}
	})
	r.runInBackground(p.Run)
}

func (r *testNode) apply(text string) {
	r.t.Helper()
	for _, o := range nettest.Objects(r.t, text) {
		switch o.(type) {
		case *networkingv1.NetworkPolicy:
			r.views[gr.NetworkPolicies].Put(o)
		case *corev1.Namespace:
			r.views[gr.Namespaces].Put(o)
		case *corev1.Service:
			r.views[gr.Services].Put(o)
		case *discoveryv1.EndpointSlice:
			r.views[gr.EndpointSlices].Put(o)
		default:
			r.t.Fatalf("unexpected type %T", o)
		}
	}
}

// applyPolicy applies a policy, in the namespace default unless its name has one.
func (r *testNode) applyPolicy(name, spec string) {
	r.t.Helper()
	namespace, short, ok := strings.Cut(name, "/")
	if !ok {
		namespace, short = "default", name
	}
	r.apply(fmt.Sprintf("kind: NetworkPolicy\nmetadata: {name: %s, namespace: %s}\nspec: %s\n", short, namespace, spec))
}

// applyService creates a Service with one endpoint of each family.
func (r *testNode) applyService(name, ip, ip6 string, to *testPod) {
	r.apply(fmt.Sprintf(`kind: Service
metadata: {name: %[1]s}
spec: {clusterIP: %[2]s, clusterIPs: [%[2]s, "%[3]s"], ipFamilies: [IPv4, IPv6], ports: [{port: 8000, protocol: TCP}]}
---
kind: EndpointSlice
metadata: {name: %[1]s-4, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: "", port: 80, protocol: TCP}]
endpoints: [{addresses: [%[4]s], nodeName: n1, conditions: {ready: true}}]
---
kind: EndpointSlice
metadata: {name: %[1]s-6, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv6
ports: [{name: "", port: 80, protocol: TCP}]
endpoints: [{addresses: ["%[5]s"], nodeName: n1, conditions: {ready: true}}]
`, name, ip, ip6, to.v4, to.v6))
}

// testPod is a Pod that answers with its name at the ports 80 and 81, TCP and UDP.
type testPod struct {
	*nettest.NS
	pod    *corev1.Pod
	v4, v6 string
}

// podObject returns the object of a Pod that has no address yet.
func podObject(name, labels string) *corev1.Pod {
	k := keyOf(name)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.name, UID: types.UID(k.name + "-uid"),
		Labels: labelsOf(labels)}}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Name: "c", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 80}}}}
	return p
}

// startPod starts a Pod as the agent does: it exists in the API, is attached, and then its address is reported.
func (r *testNode) startPod(name, labels string) *testPod {
	r.t.Helper()
	p := podObject(name, labels)
	r.views[gr.Pods].Put(p)
	g := r.connect(p)
	r.report(g)
	return g
}

// connect attaches a Pod to the network, and starts its servers.
func (r *testNode) connect(p *corev1.Pod) *testPod {
	r.t.Helper()
	g, err := r.tryConnect(p)
	if err != nil {
		r.t.Fatal(err)
	}
	return g
}

func (r *testNode) tryConnect(p *corev1.Pod) (*testPod, error) {
	r.t.Helper()
	g := &testPod{NS: nettest.New(r.t), pod: p}
	f, err := os.Open(g.Path())
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	args := fmt.Sprintf("K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=%s", p.Namespace, p.Name, p.UID)
	result, err := r.net.CNI(r.t.Context(),
		&cni.Request{Command: cni.Add, ContainerID: string(p.UID), IfName: "eth0", NetNS: g.Path(), Args: args}, &cni.Config{}, f)
	if err != nil {
		return nil, err
	}
	for _, a := range result.Addresses {
		if ip := a.Address.Addr(); ip.Is4() {
			g.v4 = ip.String()
		} else {
			g.v6 = ip.String()
		}
	}
	for _, network := range []string{"tcp", "udp"} {
		g.Listen(network, ":80", p.Name)
		g.Listen(network, ":81", p.Name)
	}
	return g, nil
}

// report writes the address of a Pod to the API.
func (r *testNode) report(g *testPod) {
	p := g.pod.DeepCopy()
	p.Status.Phase = corev1.PodRunning
	p.Status.PodIPs = nil
	for _, ip := range []string{g.v4, g.v6} {
		if ip != "" {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: ip})
		}
	}
	g.pod = p
	r.views[gr.Pods].Put(p)
}

// disconnect detaches a Pod.
func (r *testNode) disconnect(g *testPod) {
	r.t.Helper()
	if _, err := r.net.CNI(r.t.Context(), &cni.Request{Command: cni.Del, ContainerID: string(g.pod.UID), IfName: "eth0", NetNS: g.Path()},
		&cni.Config{}, nil); err != nil {
		r.t.Fatal(err)
	}
	g.Drop()
}

// ask returns an answer, or that there is none within a time limit.
type ask func(limit time.Duration) string

// shortly is the limit for answers that are not expected, or that are asked for again. An answer that is expected may take as long as
// a busy machine needs.
const (
	shortly   = 400 * time.Millisecond
	patiently = 10 * time.Second
)

// eventually waits until ask returns want, because rules follow objects after a moment.
func (r *testNode) eventually(what, want string, ask ask) {
	r.t.Helper()
	var got string
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if got = ask(shortly); got == want {
			nettest.Home(r.t).Readable(r.t)
			return
		}
	}
	r.t.Errorf("%s: got %q, want %q", what, got, want)
	r.logTable()
}

// check fails the test unless the first answer is want.
func (r *testNode) check(what, want string, ask ask) {
	r.t.Helper()
	limit := patiently
	if want == "no answer" {
		limit = shortly
	}
	if got := ask(limit); got != want {
		r.t.Errorf("%s: got %q, want %q", what, got, want)
		r.logTable()
	}
}

// logTable logs the rules if the environment variable SHOW is set.
func (r *testNode) logTable() {
	if nft, err := exec.LookPath("nft"); err == nil && os.Getenv("SHOW") != "" {
		raw, _ := exec.Command(nft, "list", "table", "inet", testTable).CombinedOutput()
		r.t.Log(string(raw))
	}
}

// probe returns a function that connects from a namespace and returns what answers there, or "no answer".
func probe(from *nettest.NS, network, host string, port int) ask {
	return func(limit time.Duration) string {
		if answer, ok := dialAndAsk(from, network, nettest.At(host, port), limit); ok {
			return answer
		}
		return "no answer"
	}
}

// dialAndAsk connects, and returns the answer and whether there is one.
func dialAndAsk(from *nettest.NS, network, addr string, limit time.Duration) (string, bool) {
	var c net.Conn
	var err error
	from.Do(func() { c, err = net.DialTimeout(network, addr, limit) })
	if err != nil {
		return err.Error(), !strings.Contains(err.Error(), "timeout")
	}
	defer c.Close()
	return askName(c, limit)
}

// askName asks the server of a connection for its name. Packets may be lost, so over UDP it asks several times.
func askName(c net.Conn, limit time.Duration) (string, bool) {
	buf := make([]byte, 100)
	again := limit
	if _, udp := c.(*net.UDPConn); udp {
		again = min(limit, shortly/2)
	}
	for ; limit > 0; limit -= again {
		_ = c.SetDeadline(time.Now().Add(again))
		if _, err := c.Write([]byte("who\n")); err != nil {
			return err.Error(), false
		}
		if n, err := c.Read(buf); err == nil {
			return strings.TrimSpace(string(buf[:n])), true
		}
	}
	return "", false
}

// addresses returns the addresses of the Pod, by family.
func (g *testPod) addresses() map[string]string {
	out := map[string]string{"IPv4": g.v4, "IPv6": g.v6}
	maps.DeleteFunc(out, func(_, ip string) bool { return ip == "" })
	return out
}

func (g *testPod) address(family string) string { return g.addresses()[family] }
