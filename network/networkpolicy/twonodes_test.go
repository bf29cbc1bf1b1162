package networkpolicy

import (
	"context"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

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
	r := newTestNode(t)
	// The outside namespace is the second node, with a Pod.
	remote := &testPod{NS: nettest.New(t), pod: podObject("other/remote", "app=remote"), v4: "10.244.8.2", v6: "fd00:244:8::2"}
	remote.pod.Spec.NodeName = "n2"
	nettest.Wire(t, nettest.End{NS: r.outside, Name: "pod0", Addrs: []string{"10.244.8.1/24", "fd00:244:8::1/64"}},
		nettest.End{NS: remote.NS, Name: "eth0", Addrs: []string{"10.244.8.2/24", "fd00:244:8::2/64"},
			Via: []string{"10.244.8.1", "fd00:244:8::1"}})
	r.outside.Do(func() {
		for _, name := range []string{"net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/"+name, []byte("1"), 0); err != nil {
				t.Error(err)
			}
		}
	})
	for _, network := range []string{"tcp", "udp"} {
		remote.Listen(network, ":80", "remote")
	}
	r.report(remote)
	secondGuard := r.newGuard("n2")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		r.outside.Do(func() { // so that its sockets belong to this namespace
			if err := secondGuard.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })

	db := r.startPod("default/db", "app=db")
	eachTransport(func(family, network string) {
		r.eventually("without policies, "+family+" "+network, "db "+remote.address(family),
			probe(remote.NS, network, db.address(family), 80))
		r.eventually("the other way, "+family+" "+network, "remote "+db.address(family), probe(db.NS, network, remote.address(family), 80))
	})
	r.applyPolicy("in", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {matchLabels: {team: blue}}}], ports: [{port: 80}]}]}")
	r.eventually("another port", "no answer", probe(remote.NS, "tcp", db.v4, 81))
	r.check("by the labels of a namespace", "db "+remote.v4, probe(remote.NS, "tcp", db.v4, 80))
	r.check("by the labels of a namespace, IPv6", "db "+remote.v6, probe(remote.NS, "tcp", db.v6, 80))
	r.check("another protocol", "no answer", probe(remote.NS, "udp", db.v4, 80))
	// The policy of its own node denies egress.
	r.applyPolicy("other/out", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{podSelector: {}}]}]}")
	r.eventually("egress denied", "no answer", probe(remote.NS, "tcp", db.v4, 80))
	r.check("egress denied, IPv6", "no answer", probe(remote.NS, "tcp", db.v6, 80))
	r.check("the other way", "remote "+db.v4, probe(db.NS, "tcp", remote.v4, 80))
	r.views[gr.NetworkPolicies].Remove("other", "out")
	r.eventually("egress allowed again", "db "+remote.v4, probe(remote.NS, "tcp", db.v4, 80))
	// The namespace has other labels.
	r.views[gr.Namespaces].Put(&corev1.Namespace{ObjectMeta: podObject("/other", "team=red").ObjectMeta})
	r.eventually("of another team", "no answer", probe(remote.NS, "tcp", db.v4, 80))
	// A Pod that has ended on its node is not allowed here any more.
	r.applyPolicy("in", "{podSelector: {}, ingress: [{from: [{namespaceSelector: {}, podSelector: {matchLabels: {app: remote}}}]}]}")
	r.eventually("by its labels", "db "+remote.v4, probe(remote.NS, "tcp", db.v4, 80))
	c, err := dialUDP(remote, db)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.check("a connection", "db "+remote.v4, func(limit time.Duration) string { s, _ := askName(c, limit); return s })
	ended := remote.pod.DeepCopy()
	ended.Status.Phase = corev1.PodFailed
	r.views[gr.Pods].Put(ended)
	r.eventually("its Pod has ended", "no answer", probe(remote.NS, "tcp", db.v4, 80))
	r.eventually("its connections are closed too", "", func(limit time.Duration) string { s, _ := askName(c, limit); return s })
	if a := netip.MustParseAddr(remote.v4); r.guard.Taken(a) {
		t.Error("the address of a Pod that has ended is taken")
	}
}

func dialUDP(from, to *testPod) (c net.Conn, err error) {
	from.Do(func() { c, err = net.Dial("udp", nettest.At(to.v4, 80)) })
	return c, err
}
