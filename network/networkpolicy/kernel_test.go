package networkpolicy

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/network/cni"
	"proa.dev/network/nettest"
	"proa.dev/network/nft"
	netpod "proa.dev/network/podnetwork"
)

// TestKernelMatchesOracle puts random policies in force, change by change, and sends packets between all Pods: exactly those
// arrive that the oracle allows.
func TestKernelMatchesOracle(t *testing.T) {
	nettest.Need(t)
	c := netpod.Config{DataDir: t.TempDir(), Bridge: "tp0", Table: "proa-test",
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/28"), netip.MustParsePrefix("fd00::/124")}}
	network, err := netpod.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netpod.Purge(c); err != nil {
			t.Error(err)
		}
	})
	kernel, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	tab := &table{name: testTable, kernel: kernel, log: slog.New(slog.DiscardHandler)}
	t.Cleanup(func() {
		if err := kernel.Remove(testTable); err != nil {
			t.Error(err)
		}
		kernel.Close()
	})
	d := &randomCluster{twoNodes: newTwoNodes(), Rand: rand.New(rand.NewPCG(7, 7))}
	arrivals := make(chan string, 1000)
	var all []*recordingPod
	for i := range 5 {
		all = append(all, startRecordingPod(t, network, d, key{[]string{"a", "b", "c"}[i%3], fmt.Sprint("pod-", i)}, arrivals))
	}
	rounds := 40
	if os.Getenv("PROA_SCALE") != "" {
		rounds = 1000
	}
	for round := range rounds {
		var what string
		switch d.IntN(4) {
		case 0:
			what = d.relabel(all[d.IntN(len(all))].key)
		default:
			what = d.changePolicy(key{d.namespace(), pick(d, "p", "q", "r")})
		}
		if err := tab.commit(d.nodes["n1"].model); err != nil {
			t.Fatalf("after %s: %v", what, err)
		}
		want := map[string]bool{}
		for _, from := range all {
			for _, to := range all {
				for _, six := range []bool{false, true} {
					for port := 79; port <= 82; port++ {
						f := flow{from.addr(six), to.addr(six), corev1.ProtocolUDP, port}
						if text := fmt.Sprint(round, " ", f); from.send(t, f, text) && d.allows(f) {
							want[text] = true
						}
					}
				}
			}
		}
		comparePackets(t, what, collectPackets(all, round, want, arrivals), want)
		if t.Failed() {
			return
		}
	}
}

// comparePackets reports packets that are missing and packets that should not have arrived.
func comparePackets(t *testing.T, what string, got, want map[string]bool) {
	t.Helper()
	for text := range want {
		if !got[text] {
			t.Errorf("after %s: %s did not arrive", what, text)
		}
	}
	for text := range got {
		if !want[text] {
			t.Errorf("after %s: %s arrived", what, text)
		}
	}
}

// recordingPod is a Pod that sends the packets that it receives to a channel.
type recordingPod struct {
	*nettest.NS
	key
	v4, v6 netip.Addr
}

func (l *recordingPod) addr(six bool) netip.Addr {
	if six {
		return l.v6
	}
	return l.v4
}

// send sends a packet of a new connection. It returns false if the packet could not be sent at all.
func (l *recordingPod) send(t *testing.T, f flow, text string) (sent bool) {
	l.Do(func() {
		c, err := net.DialUDP("udp", &net.UDPAddr{IP: f.from.AsSlice()}, &net.UDPAddr{IP: f.to.AsSlice(), Port: f.port})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		_, err = c.Write([]byte(text))
		sent = err == nil
	})
	return sent
}

// collectPackets waits for the expected packets, and then for packets of the node itself, which are sent last and not
// filtered.
func collectPackets(all []*recordingPod, round int, want map[string]bool, arrivals chan string) map[string]bool {
	got := map[string]bool{}
	deadline := time.After(20 * time.Second)
	for {
		missing := false
		for text := range want {
			missing = missing || !got[text]
		}
		if !missing {
			break
		}
		select {
		case text := <-arrivals:
			if !strings.HasPrefix(text, "ready") { // of a Pod that was reached before
				got[text] = true
			}
		case <-deadline:
			return got
		}
	}
	last := map[string]bool{}
	for _, l := range all {
		for port := 79; port <= 82; port++ {
			text := fmt.Sprint("last of ", round, " at ", l.v4, " ", port)
			last[text] = true
			if c, err := net.Dial("udp", netip.AddrPortFrom(l.v4, uint16(port)).String()); err == nil {
				_, _ = c.Write([]byte(text))
				c.Close()
			}
		}
	}
	for len(last) > 0 {
		select {
		case text := <-arrivals:
			if strings.HasPrefix(text, "last") {
				delete(last, text)
			} else if !strings.HasPrefix(text, "ready") {
				got[text] = true
			}
		case <-deadline:
			return got
		}
	}
	return got
}

// startRecordingPod connects a Pod to the network, which listens on the UDP ports 79 to 82.
func startRecordingPod(t *testing.T, network *netpod.Network, d *randomCluster, k key, arrivals chan string) *recordingPod {
	t.Helper()
	l := &recordingPod{NS: nettest.New(t), key: k}
	f, err := os.Open(l.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	result, err := network.CNI(t.Context(), &cni.Request{Command: cni.Add, ContainerID: k.name, IfName: "eth0", NetNS: l.Path()},
		&cni.Config{}, f)
	if err != nil {
		t.Fatal(err)
	}
	l.v4, l.v6 = result.Addresses[0].Address.Addr(), result.Addresses[1].Address.Addr()
	for port := 79; port <= 82; port++ {
		l.Do(func() {
			c, err := net.ListenPacket("udp", fmt.Sprint(":", port))
			if err != nil {
				t.Error(err)
				return
			}
			t.Cleanup(func() { c.Close() })
			go func() {
				buf := make([]byte, 200)
				for {
					n, _, err := c.ReadFrom(buf)
					if err != nil {
						return
					}
					arrivals <- string(buf[:n])
				}
			}()
		})
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: k.name, UID: types.UID(k.name), Labels: d.labels()}}
	p.Spec.NodeName = "n1"
	p.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 79 + d.Int32N(4),
		Protocol: corev1.ProtocolUDP}}}}
	p.Status.PodIPs = []corev1.PodIP{{IP: l.v4.String()}, {IP: l.v6.String()}}
	d.pods[k] = p
	d.nodes["n1"].setPod(k, p)
	// A bridge port needs a moment until it forwards: wait until the node reaches the Pod.
	ready := "ready " + k.name
	for range 300 {
		if c, err := net.Dial("udp", netip.AddrPortFrom(l.v4, 79).String()); err == nil {
			_, _ = c.Write([]byte(ready))
			c.Close()
		}
		for again := time.After(100 * time.Millisecond); again != nil; {
			select {
			case text := <-arrivals: // perhaps a late one of another Pod
				if text == ready {
					return l
				}
			case <-again:
				again = nil
			}
		}
	}
	t.Fatalf("%s is not reached", k)
	return nil
}

// relabel changes the labels of a Pod and a namespace.
func (d *randomCluster) relabel(k key) string {
	p := d.pods[k].DeepCopy()
	p.Labels = d.labels()
	d.pods[k] = p
	namespace := pick(d, slices.Sorted(maps.Keys(map[string]bool{"a": true, "b": true, "c": true}))...)
	d.namespaces[namespace] = d.labels()
	for _, r := range d.nodes {
		r.setPod(k, p)
		r.setNamespace(namespace, d.namespaces[namespace])
	}
	return fmt.Sprintf("labels of %s %v and of namespace %s %v", k, p.Labels, namespace, d.namespaces[namespace])
}

// TestLargePolicy puts very large policies in force: thousands of blocks, and hundreds of ports.
func TestLargePolicy(t *testing.T) {
	nettest.Need(t)
	kernel, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	defer func() {
		if err := kernel.Remove(testTable); err != nil {
			t.Error(err)
		}
	}()
	s := newTwoNodes()
	s.run(t, "namespace a")
	s.run(t, "pod a/db 10.0.0.1,fd00::1 app=db")
	var blocks, ports []string
	for i := range 3001 {
		blocks = append(blocks, fmt.Sprintf("{ipBlock: {cidr: 192.%d.%d.0/25}}", i>>8, i&255),
			fmt.Sprintf(`{ipBlock: {cidr: "2001:db8:%x::/64"}}`, i))
	}
	for i := range 500 {
		ports = append(ports, fmt.Sprintf("{port: %d, endPort: %d}", 1000+10*i, 1005+10*i))
	}
	for _, extra := range []string{"{ipBlock: {cidr: 255.255.255.0/24}}", `{ipBlock: {cidr: "ffff::/16"}}`, "{ipBlock: {cidr: 0.0.0.0/0}}",
		`{ipBlock: {cidr: "::/0"}}`} {
		blocks = append(blocks, extra)
		s.run(t, fmt.Sprintf("policy a/p {podSelector: {}, policyTypes: [Ingress, Egress], ingress: [{from: [%[1]s], ports: [%[2]s]}], egress: [{to: [%[1]s]}]}",
			strings.Join(blocks, ", "), strings.Join(ports, ", ")))
		tab := &table{name: testTable, kernel: kernel, log: slog.New(slog.DiscardHandler)}
		if err := tab.commit(s.nodes["n1"].model); err != nil {
			t.Fatalf("with %s: %v", extra, err)
		}
		if has, err := kernel.Has(testTable); !has || err != nil {
			t.Errorf("with %s: the table is not there: %v", extra, err)
		}
	}
}
