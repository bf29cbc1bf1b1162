package networkpolicy

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/network/nettest"
)

func dialFrom(network, from string, port int, to string) (net.Conn, error) {
	d := net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from), Port: port}}
	return d.Dial(network, to)
}

func addLoopback(t *testing.T, ip string) {
	t.Helper()
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.AddrDel(lo, addr) })
}

// TestPodsOfTwoNodes has policies at both ends of a connection, each enforced by the node of its Pod.
func TestPodsOfTwoNodes(t *testing.T) {
	r := newRig(t)
	// The world outside is the second node, and has a Pod.
	far := &guest{NS: nettest.New(t), pod: object("other/far", "app=far"), v4: "10.244.8.2", v6: "fd00:244:8::2"}
	far.pod.Spec.NodeName = "n2"
	nettest.Wire(t, nettest.End{NS: r.outside, Name: "pod0", Addrs: []string{"10.244.8.1/24", "fd00:244:8::1/64"}},
		nettest.End{NS: far.NS, Name: "eth0", Addrs: []string{"10.244.8.2/24", "fd00:244:8::2/64"},
			Via: []string{"10.244.8.1", "fd00:244:8::1"}})
	r.outside.Do(func() {
		for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/"+name, []byte("1"), 0); err != nil {
				t.Error(err)
			}
		}
	})
	for _, network := range []string{"tcp", "udp"} {
		far.Listen(network, ":80", "far")
	}
	r.report(far)
	second := r.newGuard("n2")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		r.outside.Do(func() { // its sockets are in this namespace
			if err := second.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })

	db := r.pod("default/db", "app=db")
	both(func(family, network string) {
		r.becomes("without policies, "+family+" "+network, "db "+far.source(family), tries(far.NS, network, db.all()[family], 80))
		r.becomes("the other way, "+family+" "+network, "far "+db.source(family), tries(db.NS, network, far.all()[family], 80))
	})
	r.policy("in", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}], ports: [{port: 80}]}]}")
	r.becomes("another port", "silence", tries(far.NS, "tcp", db.v4, 81))
	r.is("by the labels of a namespace", "db "+far.v4, tries(far.NS, "tcp", db.v4, 80))
	r.is("by the labels of a namespace, IPv6", "db "+far.v6, tries(far.NS, "tcp", db.v6, 80))
	r.is("another protocol", "silence", tries(far.NS, "udp", db.v4, 80))
	// Its own node does not let it out.
	r.policy("other/out", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}")
	r.becomes("not let out", "silence", tries(far.NS, "tcp", db.v4, 80))
	r.is("not let out, IPv6", "silence", tries(far.NS, "tcp", db.v6, 80))
	r.is("the other way", "far "+db.v4, tries(db.NS, "tcp", far.v4, 80))
	r.views[gr.NetworkPolicies].Remove("other", "out")
	r.becomes("let out again", "db "+far.v4, tries(far.NS, "tcp", db.v4, 80))
	// The namespace has other labels.
	r.views[gr.Namespaces].Put(&corev1.Namespace{ObjectMeta: object("/other", "team=red").ObjectMeta})
	r.becomes("of another team", "silence", tries(far.NS, "tcp", db.v4, 80))
	// A Pod that ended there has no rights here.
	r.policy("in", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: far}}}]}]}")
	r.becomes("by its labels", "db "+far.v4, tries(far.NS, "tcp", db.v4, 80))
	c, err := dialIn(far, db)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.is("a stream", "db "+far.v4, func() string { s, _ := say(c); return s })
	over := far.pod.DeepCopy()
	over.Status.Phase = corev1.PodFailed
	r.views[gr.Pods].Put(over)
	r.becomes("its Pod has ended", "silence", tries(far.NS, "tcp", db.v4, 80))
	r.becomes("and so have its streams", "", func() string { s, _ := say(c); return s })
	if a := netip.MustParseAddr(far.v4); r.guard.Taken(a) {
		t.Error("the address of a Pod that has ended is taken")
	}
}

func dialIn(from, to *guest) (c net.Conn, err error) {
	from.Do(func() { c, err = net.Dial("udp", nettest.At(to.v4, 80)) })
	return c, err
}
