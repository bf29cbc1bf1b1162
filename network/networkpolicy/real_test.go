package networkpolicy

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/network/nettest"
	"proa.dev/network/nft"
)

// eachTransport runs a check for each family and each transport, all at once, because waiting for a timeout takes time.
func eachTransport(check func(family, network string)) {
	var wg sync.WaitGroup
	for _, family := range []string{"IPv4", "IPv6"} {
		for _, network := range []string{"tcp", "udp"} {
			wg.Go(func() { check(family, network) })
		}
	}
	wg.Wait()
}

// withBridgeFilter runs a test without and with the kernel filter for bridged frames, which many hosts have enabled: with it, a
// packet of a Service to a Pod of the same node is bridged back instead of routed.
func withBridgeFilter(t *testing.T, test func(*testing.T)) {
	nettest.Need(t)
	for _, value := range []string{"0", "1"} {
		t.Run("bridge-nf-call="+value, func(t *testing.T) {
			for _, name := range []string{"iptables", "ip6tables"} {
				file := "/proc/sys/net/bridge/bridge-nf-call-" + name
				was, err := os.ReadFile(file)
				if err != nil && value == "1" {
					t.Skip("the kernel has no filter for bridges")
				}
				if err != nil {
					continue
				}
				if err := os.WriteFile(file, []byte(value), 0); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = os.WriteFile(file, was, 0) })
			}
			test(t)
		})
	}
}

func TestPodsOfOneNode(t *testing.T) { withBridgeFilter(t, testPodsOfOneNode) }

func testPodsOfOneNode(t *testing.T) {
	r := newTestNode(t)
	db, web, other := r.startPod("default/db", "app=db"), r.startPod("default/web", "app=web"), r.startPod("other/x", "app=web")
	eachTransport(func(family, network string) {
		for _, g := range []*testPod{web, other} {
			r.eventually(g.pod.Name+" to db before", "db "+g.address(family), probe(g.NS, network, db.address(family), 80))
		}
	})
	r.applyPolicy("deny", "{podSelector: {matchLabels: {app: db}}}")
	r.eventually("denied", "no answer", probe(web.NS, "tcp", db.v4, 80))
	eachTransport(func(family, network string) {
		r.check("denied, "+family+" "+network, "no answer", probe(web.NS, network, db.address(family), 80))
		r.check("the other way, "+family+" "+network, "web "+db.address(family), probe(db.NS, network, web.address(family), 80))
		r.check("the node itself, "+family+" "+network, "db "+map[string]string{"IPv4": "10.244.7.1", "IPv6": "fd00:244:7::1"}[family],
			probe(r.host, network, db.address(family), 80))
		r.check("with itself, "+family+" "+network, "db "+db.address(family), probe(db.NS, network, db.address(family), 80))
	})
	r.applyPolicy("allow", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: http}, {port: 80, protocol: UDP}]}]}")
	r.eventually("allowed", "db "+web.v4, probe(web.NS, "tcp", db.v4, 80))
	eachTransport(func(family, network string) {
		r.check("allowed, "+family+" "+network, "db "+web.address(family), probe(web.NS, network, db.address(family), 80))
		r.check("another port, "+family+" "+network, "no answer", probe(web.NS, network, db.address(family), 81))
		r.check("another namespace, "+family+" "+network, "no answer", probe(other.NS, network, db.address(family), 80))
	})
	// Other labels, and so other policies.
	web.pod = web.pod.DeepCopy()
	web.pod.Labels = map[string]string{"app": "none"}
	r.report(web)
	r.eventually("with other labels", "no answer", probe(web.NS, "tcp", db.v4, 80))
	r.views[gr.NetworkPolicies].Remove("default", "allow")
	r.views[gr.NetworkPolicies].Remove("default", "deny")
	r.eventually("without policies", "db "+other.v4, probe(other.NS, "tcp", db.v4, 80))
	kernel, err := nft.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer kernel.Close()
	if has, err := kernel.Has(testTable); has || err != nil {
		t.Errorf("without policies there is a table (%v)", err)
	}
}

func TestEgress(t *testing.T) {
	r := newTestNode(t)
	r.outside.Listen("tcp", ":80", "outside")
	r.outside.Listen("tcp", ":443", "outside")
	db, web, other := r.startPod("default/db", "app=db"), r.startPod("default/web", "app=web"), r.startPod("other/x", "app=x")
	r.applyPolicy("out", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80, endPort: 81}]}, {to: [{ipBlock: {cidr: 192.168.0.0/16, except: [192.168.9.3/32]}}], ports: [{port: 443}]}]}")
	r.eventually("to another Pod", "no answer", probe(web.NS, "tcp", other.v4, 80))
	for family, ip := range db.addresses() {
		r.check("to the database, "+family, "db "+web.address(family), probe(web.NS, "tcp", ip, 80))
		r.check("in the range, "+family, "db "+web.address(family), probe(web.NS, "tcp", ip, 81))
		r.check("another protocol, "+family, "no answer", probe(web.NS, "udp", ip, 80))
	}
	r.check("to another Pod, IPv6", "no answer", probe(web.NS, "tcp", other.v6, 80))
	r.check("out", "outside 192.168.9.1", probe(web.NS, "tcp", "192.168.9.2", 443))
	r.check("out to another port", "no answer", probe(web.NS, "tcp", "192.168.9.2", 80))
	r.check("out to the exception", "no answer", probe(web.NS, "tcp", "192.168.9.3", 443))
	r.check("out over IPv6", "no answer", probe(web.NS, "tcp", "fd99::2", 443))
	r.check("a Pod that is not selected", "outside 192.168.9.1", probe(db.NS, "tcp", "192.168.9.2", 80))
	r.check("from another Pod", "web "+db.v4, probe(db.NS, "tcp", web.v4, 80))
}

// TestServices connects to cluster IPs: the policies of the endpoint apply, and the endpoint sees the address of the
// client.
func TestServices(t *testing.T) { withBridgeFilter(t, testServices) }

func testServices(t *testing.T) {
	r := newTestNode(t)
	db, web, other := r.startPod("default/db", "app=db"), r.startPod("default/web", "app=web"), r.startPod("default/x", "app=x")
	r.applyService("db", "10.96.0.20", "fd00:96::20", db)
	r.applyService("x", "10.96.0.21", "fd00:96::21", other)
	r.applyPolicy("out", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}]}")
	r.applyPolicy("in", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]}")
	for family, ip := range map[string]string{"IPv4": "10.96.0.20", "IPv6": "fd00:96::20"} {
		r.eventually("to the Service, "+family, "db "+web.address(family), probe(web.NS, "tcp", ip, 8000))
		r.eventually("a Pod that may not, "+family, "no answer", probe(other.NS, "tcp", ip, 8000))
		// Its connection arrives with the node's address, since it could not receive replies from its own address.
		r.check("to itself through the Service, "+family, "db "+map[string]string{"IPv4": "10.244.7.1", "IPv6": "fd00:244:7::1"}[family],
			probe(db.NS, "tcp", ip, 8000))
	}
	for family, ip := range map[string]string{"IPv4": "10.96.0.21", "IPv6": "fd00:96::21"} {
		r.eventually("to another Service, "+family, "no answer", probe(web.NS, "tcp", ip, 8000))
		r.eventually("from a Pod that may, "+family, "x "+db.address(family), probe(db.NS, "tcp", ip, 8000))
	}
}

// TestIngressFromOutside allows some clients from outside.
func TestIngressFromOutside(t *testing.T) {
	r := newTestNode(t)
	db := r.startPod("default/db", "app=db")
	r.applyPolicy("in", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 192.168.9.0/24}}], ports: [{port: 80}]}]}")
	r.eventually("from outside", "db 192.168.9.2", probe(r.outside, "tcp", db.v4, 80))
	r.eventually("from outside, another port", "no answer", probe(r.outside, "tcp", db.v4, 81))
	r.check("from outside, IPv6", "no answer", probe(r.outside, "tcp", db.v6, 80))
	r.applyPolicy("in", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [192.168.9.2/32]}}, {ipBlock: {cidr: \"::/0\"}}]}]}")
	r.eventually("the exception", "no answer", probe(r.outside, "tcp", db.v4, 80))
	r.check("all of IPv6", "db fd99::2", probe(r.outside, "tcp", db.v6, 80))
}

// TestEstablishedConnectionsSurviveNewPolicy checks that established connections survive a new policy.
func TestEstablishedConnectionsSurviveNewPolicy(t *testing.T) {
	r := newTestNode(t)
	db, web := r.startPod("default/db", "app=db"), r.startPod("default/web", "app=web")
	for _, network := range []string{"tcp", "udp"} {
		r.eventually("before", "db "+web.v4, probe(web.NS, network, db.v4, 80))
		c, err := web.Dial(network, nettest.At(db.v4, 80))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ask := func(limit time.Duration) string { s, _ := askName(c, limit); return s }
		r.check("a connection, "+network, "db "+web.v4, ask)
		r.applyPolicy("deny", "{podSelector: {}, policyTypes: [Ingress, Egress]}")
		r.eventually("a new connection, "+network, "no answer", probe(web.NS, network, db.v4, 80))
		r.check("the established connection, "+network, "db "+web.v4, ask)
		r.views[gr.NetworkPolicies].Remove("default", "deny")
	}
}

// TestRulesAreInForceWhenAttachReturns attaches Pods where policies exist: when Attach returns, before anything runs in them and before
// the API knows their addresses, the rules are in force.
func TestRulesAreInForceWhenAttachReturns(t *testing.T) {
	r := newTestNode(t)
	client := r.startPod("default/client", "app=client")
	open := r.startPod("default/open", "app=open")
	r.applyPolicy("deny", "{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}")
	db := podObject("default/db", "app=db")
	r.views[gr.Pods].Put(db)
	g := r.connect(db)
	eachTransport(func(family, network string) {
		r.check("it cannot connect, "+family+" "+network, "no answer", probe(g.NS, network, open.address(family), 80))
		r.check("others cannot connect to it, "+family+" "+network, "no answer", probe(open.NS, network, g.address(family), 80))
	})
	r.eventually("from the allowed client", "db "+client.v4, probe(client.NS, "tcp", g.v4, 80))
	// A Pod whose object the node has not seen yet, in a namespace with policies.
	unknownPod := r.connect(podObject("default/unknown", "app=open"))
	r.check("an unknown Pod cannot connect", "no answer", probe(unknownPod.NS, "tcp", open.v4, 80))
	r.check("others cannot connect to an unknown Pod", "no answer", probe(open.NS, "tcp", unknownPod.v4, 80))
	r.views[gr.Pods].Put(unknownPod.pod)
	r.eventually("its object has arrived", "open "+unknownPod.v4, probe(unknownPod.NS, "tcp", open.v4, 80))
	// And one in a namespace without policies.
	unrestricted := r.connect(podObject("other/unrestricted", "app=open"))
	r.eventually("an unknown Pod in another namespace", "open "+unrestricted.v4, probe(unrestricted.NS, "tcp", open.v4, 80))
}

// TestReusedAddressHasNoOldConnections gives the address of an allowed Pod to one that is not allowed: it can neither
// continue the connection of the first Pod nor open one.
func TestReusedAddressHasNoOldConnections(t *testing.T) {
	// The network has an address for one Pod.
	r := newTestNode(t, netip.MustParsePrefix("10.244.7.0/30"))
	web := r.startPod("default/web", "app=web")
	r.outside.Listen("udp", ":80", "outside")
	r.applyPolicy("out", "{podSelector: {matchLabels: {app: restricted}}, policyTypes: [Egress]}")
	// A fixed source port, so that both Pods use the same conntrack entry.
	sendUDP := func(g *testPod, limit time.Duration) string {
		var c interface{ Close() error }
		defer func() {
			if c != nil {
				c.Close()
			}
		}()
		answer := "no answer"
		g.Do(func() {
			conn, err := dialFrom("udp", g.v4, 4444, "192.168.9.2:80")
			if err != nil {
				answer = err.Error()
				return
			}
			c = conn
			if s, ok := askName(conn, limit); ok {
				answer = s
			}
		})
		return answer
	}
	r.eventually("the first Pod has a connection", "outside 192.168.9.1", func(limit time.Duration) string { return sendUDP(web, limit) })
	// The Pod has ended, on the node and in the API.
	r.disconnect(web)
	ended := web.pod.DeepCopy()
	ended.Status.Phase = corev1.PodSucceeded
	r.views[gr.Pods].Put(ended)
	restricted := podObject("default/restricted", "app=restricted")
	r.views[gr.Pods].Put(restricted)
	var g *testPod
	r.eventually("the address is released", "<nil>", func(time.Duration) string {
		var err error
		g, err = r.tryConnect(restricted)
		return fmt.Sprint(err)
	})
	nettest.Same(t, "the address", g.v4, web.v4)
	r.check("the second Pod cannot use the connection", "no answer", func(limit time.Duration) string { return sendUDP(g, limit) })
	r.views[gr.NetworkPolicies].Remove("default", "out")
	r.eventually("without the policy", "outside 192.168.9.1", func(limit time.Duration) string { return sendUDP(g, limit) })
}

// TestDNSOfTheNode queries the DNS of the node: policies treat that as a connection to the DNS Pods of the cluster.
func TestDNSOfTheNode(t *testing.T) {
	r := newTestNode(t)
	addLoopback(t, dnsAddress)
	r.host.Listen("udp", dnsAddress+":53", "dns")
	web := r.startPod("default/web", "app=web")
	r.eventually("before", "dns "+web.v4, probe(web.NS, "udp", dnsAddress, 53))
	r.applyPolicy("deny", "{podSelector: {}, policyTypes: [Egress]}")
	r.eventually("denied", "no answer", probe(web.NS, "udp", dnsAddress, 53))
	r.applyPolicy("dns", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53, protocol: UDP}, {port: 53}]}]}")
	r.eventually("allowed", "dns "+web.v4, probe(web.NS, "udp", dnsAddress, 53))
	r.applyPolicy("dns", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.96.0.10/32}}], ports: [{port: 53, protocol: UDP}]}]}")
	r.check("allowed by its IP block", "dns "+web.v4, probe(web.NS, "udp", dnsAddress, 53))
	r.views[gr.NetworkPolicies].Remove("default", "dns")
	r.eventually("denied again", "no answer", probe(web.NS, "udp", dnsAddress, 53))
	r.host.Listen("tcp", "10.244.7.1:9999", "node")
	r.check("the node itself is always reached", "node "+web.v4, probe(web.NS, "tcp", "10.244.7.1", 9999))
}

// TestGuardRestart stops and starts the guard, and removes its rules while it runs.
func TestGuardRestart(t *testing.T) {
	r := newTestNode(t)
	db, web := r.startPod("default/db", "app=db"), r.startPod("default/web", "app=web")
	r.applyPolicy("deny", "{podSelector: {matchLabels: {app: db}}}")
	r.eventually("denied", "no answer", probe(web.NS, "tcp", db.v4, 80))
	r.stopGuard()
	r.check("without a guard", "no answer", probe(web.NS, "tcp", db.v4, 80))
	r.views[gr.NetworkPolicies].Remove("default", "deny")
	r.applyPolicy("allow", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}]}]}")
	r.check("a new policy without a guard", "no answer", probe(web.NS, "tcp", db.v4, 80))
	r.startGuard()
	r.eventually("with a guard", "db "+web.v4, probe(web.NS, "tcp", db.v4, 80))
	r.applyPolicy("allow", "{podSelector: {matchLabels: {app: db}}}")
	r.eventually("denied again", "no answer", probe(web.NS, "tcp", db.v4, 80))
	if err := Purge(testTable); err != nil {
		t.Fatal(err)
	}
	r.check("the rules were removed", "db "+web.v4, probe(web.NS, "tcp", db.v4, 80))
	r.guard.checkPresent()
	r.guard.wake.Send()
	r.eventually("the rules are written again", "no answer", probe(web.NS, "tcp", db.v4, 80))
	// A change while they are missing, before the guard has noticed.
	if err := Purge(testTable); err != nil {
		t.Fatal(err)
	}
	r.applyPolicy("more", "{podSelector: {matchLabels: {app: web}}}")
	r.eventually("the rules are written again with the change", "no answer", probe(web.NS, "tcp", db.v4, 80))
	r.check("the changed policy", "no answer", probe(db.NS, "tcp", web.v4, 80))
}
