package networkpolicy

import (
	"fmt"
	"net/netip"
	"os"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/network/nettest"
	"proa.dev/network/nft"
)

// both runs a check for each family and each transport, all at once, because waiting for silence takes time.
func both(check func(family, network string)) {
	var wg sync.WaitGroup
	for _, family := range []string{"IPv4", "IPv6"} {
		for _, network := range []string{"tcp", "udp"} {
			wg.Go(func() { check(family, network) })
		}
	}
	wg.Wait()
}

// bridges runs a test with and without the kernel filter for bridged frames, which many hosts have enabled: with it, a
// packet of a Service to a Pod of the same node is bridged back instead of routed.
func bridges(t *testing.T, test func(*testing.T)) {
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

func TestPodsOfOneNode(t *testing.T) { bridges(t, podsOfOneNode) }

func podsOfOneNode(t *testing.T) {
	r := newRig(t)
	db, web, other := r.pod("default/db", "app=db"), r.pod("default/web", "app=web"), r.pod("other/x", "app=web")
	both(func(family, network string) {
		for _, g := range []*guest{web, other} {
			r.becomes(g.pod.Name+" to db before", "db "+g.source(family), tries(g.NS, network, db.all()[family], 80))
		}
	})
	r.policy("deny", "{podSelector: {matchLabels: {app: db}}}")
	r.becomes("denied", "silence", tries(web.NS, "tcp", db.v4, 80))
	both(func(family, network string) {
		r.is("denied, "+family+" "+network, "silence", tries(web.NS, network, db.all()[family], 80))
		r.is("the other way, "+family+" "+network, "web "+db.source(family), tries(db.NS, network, web.all()[family], 80))
		r.is("the node itself, "+family+" "+network, "db "+map[string]string{"IPv4": "10.244.7.1", "IPv6": "fd00:244:7::1"}[family],
			tries(r.home, network, db.all()[family], 80))
		r.is("with itself, "+family+" "+network, "db "+db.source(family), tries(db.NS, network, db.all()[family], 80))
	})
	r.policy("allow", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: http}, {port: 80, protocol: UDP}]}]}")
	r.becomes("allowed", "db "+web.v4, tries(web.NS, "tcp", db.v4, 80))
	both(func(family, network string) {
		r.is("allowed, "+family+" "+network, "db "+web.source(family), tries(web.NS, network, db.all()[family], 80))
		r.is("another port, "+family+" "+network, "silence", tries(web.NS, network, db.all()[family], 81))
		r.is("another namespace, "+family+" "+network, "silence", tries(other.NS, network, db.all()[family], 80))
	})
	// Labels decide, and they change.
	web.pod = web.pod.DeepCopy()
	web.pod.Labels = map[string]string{"app": "nobody"}
	r.report(web)
	r.becomes("with other labels", "silence", tries(web.NS, "tcp", db.v4, 80))
	r.views[gr.NetworkPolicies].Remove("default", "allow")
	r.views[gr.NetworkPolicies].Remove("default", "deny")
	r.becomes("without policies", "db "+other.v4, tries(other.NS, "tcp", db.v4, 80))
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
	r := newRig(t)
	r.outside.Listen("tcp", ":80", "outside")
	r.outside.Listen("tcp", ":443", "outside")
	db, web, other := r.pod("default/db", "app=db"), r.pod("default/web", "app=web"), r.pod("other/x", "app=x")
	r.policy("out", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80, endPort: 81}]}, {to: [{ipBlock: {cidr: 192.168.0.0/16, except: [192.168.9.3/32]}}], ports: [{port: 443}]}]}")
	r.becomes("to another Pod", "silence", tries(web.NS, "tcp", other.v4, 80))
	for family, ip := range db.all() {
		r.is("to the database, "+family, "db "+web.source(family), tries(web.NS, "tcp", ip, 80))
		r.is("in the range, "+family, "db "+web.source(family), tries(web.NS, "tcp", ip, 81))
		r.is("another protocol, "+family, "silence", tries(web.NS, "udp", ip, 80))
	}
	r.is("to another Pod, IPv6", "silence", tries(web.NS, "tcp", other.v6, 80))
	r.is("out", "outside 192.168.9.1", tries(web.NS, "tcp", "192.168.9.2", 443))
	r.is("out to another port", "silence", tries(web.NS, "tcp", "192.168.9.2", 80))
	r.is("out to the exception", "silence", tries(web.NS, "tcp", "192.168.9.3", 443))
	r.is("out over IPv6", "silence", tries(web.NS, "tcp", "fd99::2", 443))
	r.is("who is not selected", "outside 192.168.9.1", tries(db.NS, "tcp", "192.168.9.2", 80))
	r.is("from others", "web "+db.v4, tries(db.NS, "tcp", web.v4, 80))
}

// TestServices connects to cluster IPs: the policies of the Pod behind apply, and the Pod sees the address of the
// client.
func TestServices(t *testing.T) { bridges(t, services) }

func services(t *testing.T) {
	r := newRig(t)
	db, web, other := r.pod("default/db", "app=db"), r.pod("default/web", "app=web"), r.pod("default/x", "app=x")
	r.service("db", "10.96.0.20", "fd00:96::20", db)
	r.service("x", "10.96.0.21", "fd00:96::21", other)
	r.policy("out", "{podSelector: {matchLabels: {app: web}}, policyTypes: [Egress], egress: [{to: [{podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}]}")
	r.policy("in", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {matchLabels: {app: web}}}], ports: [{port: 80}]}]}")
	for family, ip := range map[string]string{"IPv4": "10.96.0.20", "IPv6": "fd00:96::20"} {
		r.becomes("to the Service, "+family, "db "+web.source(family), tries(web.NS, "tcp", ip, 8000))
		r.becomes("who may not, "+family, "silence", tries(other.NS, "tcp", ip, 8000))
		// It comes back to itself with the node's address, or it would not know its own answer.
		r.is("to itself through the Service, "+family, "db "+map[string]string{"IPv4": "10.244.7.1", "IPv6": "fd00:244:7::1"}[family],
			tries(db.NS, "tcp", ip, 8000))
	}
	for family, ip := range map[string]string{"IPv4": "10.96.0.21", "IPv6": "fd00:96::21"} {
		r.becomes("to another Service, "+family, "silence", tries(web.NS, "tcp", ip, 8000))
		r.becomes("it is there, "+family, "x "+db.source(family), tries(db.NS, "tcp", ip, 8000))
	}
}

// TestFromOutside allows some clients from outside.
func TestFromOutside(t *testing.T) {
	r := newRig(t)
	db := r.pod("default/db", "app=db")
	r.policy("in", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 192.168.9.0/24}}], ports: [{port: 80}]}]}")
	r.becomes("from outside", "db 192.168.9.2", tries(r.outside, "tcp", db.v4, 80))
	r.becomes("from outside, another port", "silence", tries(r.outside, "tcp", db.v4, 81))
	r.is("from outside, IPv6", "silence", tries(r.outside, "tcp", db.v6, 80))
	r.policy("in", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{ipBlock: {cidr: 0.0.0.0/0, except: [192.168.9.2/32]}}, {ipBlock: {cidr: \"::/0\"}}]}]}")
	r.becomes("the exception", "silence", tries(r.outside, "tcp", db.v4, 80))
	r.is("all of IPv6", "db fd99::2", tries(r.outside, "tcp", db.v6, 80))
}

// TestWhatHasBegunGoesOn checks that established connections survive a new policy.
func TestWhatHasBegunGoesOn(t *testing.T) {
	r := newRig(t)
	db, web := r.pod("default/db", "app=db"), r.pod("default/web", "app=web")
	for _, network := range []string{"tcp", "udp"} {
		r.becomes("before", "db "+web.v4, tries(web.NS, network, db.v4, 80))
		c, err := web.Dial(network, nettest.At(db.v4, 80))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ask := func() string { s, _ := say(c); return s }
		r.is("a connection, "+network, "db "+web.v4, ask)
		r.policy("deny", "{podSelector: {}, policyTypes: [Ingress, Egress]}")
		r.becomes("a new one, "+network, "silence", tries(web.NS, network, db.v4, 80))
		r.is("the old one, "+network, "db "+web.v4, ask)
		r.views[gr.NetworkPolicies].Remove("default", "deny")
	}
}

// TestFirstTheRules attaches Pods where policies exist: when Attach returns, before anything runs in them and before
// the API knows their addresses, the rules are in force.
func TestFirstTheRules(t *testing.T) {
	r := newRig(t)
	client := r.pod("default/client", "app=client")
	open := r.pod("default/open", "app=open")
	r.policy("deny", "{podSelector: {matchLabels: {app: db}}, policyTypes: [Ingress, Egress], ingress: [{from: [{podSelector: {matchLabels: {app: client}}}], ports: [{port: 80}]}]}")
	db := object("default/db", "app=db")
	r.views[gr.Pods].Put(db)
	g := r.connect(db)
	both(func(family, network string) {
		r.is("it cannot talk, "+family+" "+network, "silence", tries(g.NS, network, open.all()[family], 80))
		r.is("nobody reaches it, "+family+" "+network, "silence", tries(open.NS, network, g.all()[family], 80))
	})
	r.becomes("but who may", "db "+client.v4, tries(client.NS, "tcp", g.v4, 80))
	// One that the API has not told us about, where there are policies.
	stranger := r.connect(object("default/stranger", "app=open"))
	r.is("a stranger cannot talk", "silence", tries(stranger.NS, "tcp", open.v4, 80))
	r.is("nobody reaches a stranger", "silence", tries(open.NS, "tcp", stranger.v4, 80))
	r.views[gr.Pods].Put(stranger.pod)
	r.becomes("it is known now", "open "+stranger.v4, tries(stranger.NS, "tcp", open.v4, 80))
	// And where there are none.
	free := r.connect(object("other/free", "app=open"))
	r.becomes("a stranger elsewhere", "open "+free.v4, tries(free.NS, "tcp", open.v4, 80))
}

// TestAnAddressHasNoRights gives the address of an allowed Pod to one that is not allowed.
func TestAnAddressHasNoRights(t *testing.T) {
	// There is room for one Pod.
	r := newRig(t, netip.MustParsePrefix("10.244.7.0/30"))
	web := r.pod("default/web", "app=web")
	r.outside.Listen("udp", ":80", "outside")
	r.policy("out", "{podSelector: {matchLabels: {app: evil}}, policyTypes: [Egress]}")
	// A port of its own, so that the next one can use the same.
	talk := func(g *guest) string {
		var c interface{ Close() error }
		defer func() {
			if c != nil {
				c.Close()
			}
		}()
		answer := "silence"
		g.Do(func() {
			conn, err := dialFrom("udp", g.v4, 4444, "192.168.9.2:80")
			if err != nil {
				answer = err.Error()
				return
			}
			c = conn
			if s, ok := say(conn); ok {
				answer = s
			}
		})
		return answer
	}
	r.becomes("the first has a stream", "outside 192.168.9.1", func() string { return talk(web) })
	// It has ended, says its node, and the API agrees.
	r.disconnect(web)
	over := web.pod.DeepCopy()
	over.Status.Phase = corev1.PodSucceeded
	r.views[gr.Pods].Put(over)
	evil := object("default/evil", "app=evil")
	r.views[gr.Pods].Put(evil)
	var g *guest
	r.becomes("the address is free when everybody knows that the Pod has ended", "<nil>", func() string {
		var err error
		g, err = r.tryConnect(evil)
		return fmt.Sprint(err)
	})
	nettest.Same(t, "the address", g.v4, web.v4)
	r.is("the second has neither its stream nor its rights", "silence", func() string { return talk(g) })
	r.views[gr.NetworkPolicies].Remove("default", "out")
	r.becomes("but for the policy it could talk", "outside 192.168.9.1", func() string { return talk(g) })
}

// TestNames queries the DNS of the node: policies treat that as a connection to the DNS Pods of the cluster.
func TestNames(t *testing.T) {
	r := newRig(t)
	addLoopback(t, names)
	r.home.Listen("udp", names+":53", "names")
	web := r.pod("default/web", "app=web")
	r.becomes("before", "names "+web.v4, tries(web.NS, "udp", names, 53))
	r.policy("deny", "{podSelector: {}, policyTypes: [Egress]}")
	r.becomes("denied", "silence", tries(web.NS, "udp", names, 53))
	r.policy("dns", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{namespaceSelector: {}, podSelector: {matchLabels: {k8s-app: kube-dns}}}], ports: [{port: 53, protocol: UDP}, {port: 53}]}]}")
	r.becomes("allowed", "names "+web.v4, tries(web.NS, "udp", names, 53))
	r.policy("dns", "{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.96.0.10/32}}], ports: [{port: 53, protocol: UDP}]}]}")
	r.is("allowed by its address", "names "+web.v4, tries(web.NS, "udp", names, 53))
	r.views[gr.NetworkPolicies].Remove("default", "dns")
	r.becomes("denied again", "silence", tries(web.NS, "udp", names, 53))
	r.home.Listen("tcp", "10.244.7.1:9999", "node")
	r.is("the node itself is always reached", "node "+web.v4, tries(web.NS, "tcp", "10.244.7.1", 9999))
}

// TestTheGuardComesAgain restarts the guard, and removes its rules.
func TestTheGuardComesAgain(t *testing.T) {
	r := newRig(t)
	db, web := r.pod("default/db", "app=db"), r.pod("default/web", "app=web")
	r.policy("deny", "{podSelector: {matchLabels: {app: db}}}")
	r.becomes("denied", "silence", tries(web.NS, "tcp", db.v4, 80))
	r.halt()
	r.is("without a guard", "silence", tries(web.NS, "tcp", db.v4, 80))
	r.views[gr.NetworkPolicies].Remove("default", "deny")
	r.policy("allow", "{podSelector: {matchLabels: {app: db}}, ingress: [{from: [{podSelector: {}}]}]}")
	r.is("nobody puts the new policy in force", "silence", tries(web.NS, "tcp", db.v4, 80))
	r.start()
	r.becomes("with a guard", "db "+web.v4, tries(web.NS, "tcp", db.v4, 80))
	r.policy("allow", "{podSelector: {matchLabels: {app: db}}}")
	r.becomes("denied again", "silence", tries(web.NS, "tcp", db.v4, 80))
	if err := Purge(testTable); err != nil {
		t.Fatal(err)
	}
	r.is("somebody has removed the rules", "db "+web.v4, tries(web.NS, "tcp", db.v4, 80))
	r.guard.checkPresent()
	r.guard.wake.Send()
	r.becomes("they are written again", "silence", tries(web.NS, "tcp", db.v4, 80))
	// A change while they are missing, before anybody has looked.
	if err := Purge(testTable); err != nil {
		t.Fatal(err)
	}
	r.policy("more", "{podSelector: {matchLabels: {app: web}}}")
	r.becomes("they are written again with the change", "silence", tries(web.NS, "tcp", db.v4, 80))
	r.is("and the change too", "silence", tries(db.NS, "tcp", web.v4, 80))
}
