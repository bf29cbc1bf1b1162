package dns

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"proa.dev/network/cni"
	"proa.dev/network/nettest"
	"proa.dev/network/podnetwork"
	proxying "proa.dev/network/service"
)

// TestFromAPod queries from a Pod, through all parts of a node: the Pod network, the rules of Services, which drop
// addresses without a Service, and the server.
func TestFromAPod(t *testing.T) {
	nettest.Need(t)
	objects := webService + `---
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec: {clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10], ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53}]}
`
	c := world(t, objects)
	c.Addresses = []netip.Addr{netip.MustParseAddr("10.96.0.10")}
	ctx, cancel := context.WithCancel(t.Context())
	pc := podnetwork.Config{DataDir: t.TempDir(), Bridge: "tp0", Table: "proa-test",
		PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.7.0/24")}}
	network, err := podnetwork.New(ctx, pc)
	if err != nil {
		t.Fatal(err)
	}
	proxy, err := proxying.New(proxying.Config{
		NodeName: "here", Services: c.Services, Slices: c.Slices, Nodes: nettest.NewView(), Table: "proa-test-services",
		ClusterCIDRs: pc.PodCIDRs, ServiceCIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, NodeAddresses: c.Addresses,
	})
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 3)
	go func() { done <- network.Serve(ctx) }()
	go func() { done <- proxy.Run(ctx) }()
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		services := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
		for _, err := range []error{podnetwork.Purge(pc), proxying.Purge("proa-test-services", services), Purge(c.Addresses)} {
			if err != nil {
				t.Error(err)
			}
		}
	})
	ns := nettest.New(t)
	f, err := os.Open(ns.Path())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := network.CNI(ctx, &cni.Request{Command: cni.Add, ContainerID: "a", IfName: "eth0", NetNS: ns.Path()}, &cni.Config{},
		f); err != nil {
		t.Fatal(err)
	}
	for _, by := range []string{"udp", "tcp"} {
		m, err := queryUntilAnswered(ns, by, "10.96.0.10:53", "kube-dns.kube-system.svc.cluster.local.")
		if err != nil {
			t.Fatal(by, err)
		}
		// The namespace kube-system is not there, so the Service has no name. That is an answer too.
		nettest.Same(t, by, strings.TrimSpace(show(m)), "NXDOMAIN SOA")
		if m, err = queryUntilAnswered(ns, by, "10.96.0.10:53", "web.default.svc.cluster.local."); err != nil {
			t.Fatal(by, err)
		}
		nettest.Same(t, by, strings.TrimSpace(show(m)), "NOERROR\n  web.default.svc.cluster.local. 5 IN A 10.96.0.11")
	}
	if !ns.Silent("tcp", "10.96.0.77:53") {
		t.Error("an address without a Service answers")
	}
}

// queryUntilAnswered asks again for up to a minute: the server and the rules may not be there yet, and packets may be lost.
func queryUntilAnswered(ns *nettest.NS, network, server, name string) (m *dns.Msg, err error) {
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if m, err = query(ns, network, server, name); err == nil || time.Now().After(end) {
			return m, err
		}
	}
}

func query(ns *nettest.NS, network, server, name string) (*dns.Msg, error) {
	conn, err := ns.Dial(network, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	r := new(dns.Msg)
	r.SetQuestion(name, dns.TypeA)
	m, _, err := (&dns.Client{Net: network, Timeout: time.Second}).ExchangeWithConn(r, &dns.Conn{Conn: conn})
	return m, err
}

// BenchmarkAnswer measures a query about the cluster, without the network.
func BenchmarkAnswer(b *testing.B) {
	s, err := New(world(b, webService))
	if err != nil {
		b.Fatal(err)
	}
	r := new(dns.Msg)
	r.SetQuestion("web.default.svc.cluster.local.", dns.TypeA)
	for b.Loop() {
		if m, _ := s.answer(b.Context(), r, netip.Addr{}); len(m.Answer) != 1 {
			b.Fatal(m)
		}
	}
}
