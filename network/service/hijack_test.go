package service

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"proa.dev/network/nettest"
)

// routedMachine returns a machine that uses the node as its router.
func (n *testNode) routedMachine() *nettest.NS {
	ns := nettest.New(n.t)
	nettest.Wire(n.t, nettest.End{NS: n.host, Name: "out1", Addrs: []string{"192.168.8.1/24"}},
		nettest.End{NS: ns, Name: "eth0", Addrs: []string{"192.168.8.2/24"}, Via: []string{"192.168.8.1"}})
	n.t.Cleanup(func() { nettest.Unplug("out1") })
	return ns
}

// addLoopbackAddresses adds addresses to the loopback interface of a namespace.
func addLoopbackAddresses(t *testing.T, ns *nettest.NS, addrs ...string) {
	t.Helper()
	ns.Do(func() {
		lo, err := netlink.LinkByName("lo")
		for _, s := range addrs {
			if err == nil {
				err = netlink.AddrAdd(lo, &netlink.Addr{IPNet: &net.IPNet{IP: netip.MustParseAddr(s).AsSlice(),
					Mask: net.CIDRMask(32, 32)}})
			}
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// TestHijack lets Services claim addresses of others, in their status and as external IPs: Pods, the node, and machines
// that use the node as a router still reach the owner of the address. A Node that claims such an address changes
// nothing. Services are served at addresses of nodes that the load balancer of the nodes has assigned, except for the
// ports of the system.
func TestHijack(t *testing.T) {
	n := newNode(t)
	a, c, routed := n.addBackend("a"), n.addBackend("client"), n.routedMachine()
	addLoopbackAddresses(t, n.outside, "198.51.100.9", "198.51.100.10")
	n.outside.Listen("tcp", ":80", "internet")
	n.host.Listen("tcp", "192.168.9.1:10250", "agent")
	n.host.Listen("tcp", "192.168.9.1:6444", "api")
	n.apply(`
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{port: 80}], externalIPs: [198.51.100.10]}
status: {loadBalancer: {ingress: [{ip: 198.51.100.9}, {ip: 192.168.9.2}]}}
---
kind: Service
metadata: {name: agent, annotations: {proa.dev/load-balancer: nodes}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.11, ports: [{port: 10250}]}
status: {loadBalancer: {ingress: [{ip: 192.168.9.1}]}}
---
kind: Service
metadata: {name: api, annotations: {proa.dev/load-balancer: nodes}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.12, ports: [{port: 6444}]}
status: {loadBalancer: {ingress: [{ip: 192.168.9.1}]}}
---
kind: Service
metadata: {name: given, annotations: {proa.dev/load-balancer: nodes}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.13, ports: [{port: 81}]}
status: {loadBalancer: {ingress: [{ip: 192.168.9.1}, {ip: 192.168.9.2}]}}
---
` + slice("web-4", "web", 80, "TCP", a.v4+" here") + "\n---\n" + slice("agent-4", "agent", 80, "TCP", a.v4+" here") + "\n---\n" + slice("given-4", "given", 80, "TCP", a.v4+" here") + "\n---\n" +
		slice("api-4", "api", 80, "TCP", a.v4+" here") + "\n---\n" + slice("kubernetes", "kubernetes", 6444, "TCP", "192.168.9.1"))
	n.eventually("the Services are served", func() string { return c.Ask("tcp", "10.96.0.10:80") + c.Ask("tcp", "10.96.0.11:10250") },
		"a "+c.v4+"a "+c.v4)
	responder := func(from *nettest.NS, to string) func() string {
		return func() string { return strings.Fields(from.Ask("tcp", to) + " none")[0] }
	}
	clients := []struct {
		name string
		*nettest.NS
	}{{"a Pod", c.NS}, {"the node", n.host}, {"a machine behind the node", routed}}
	for _, from := range clients {
		n.eventually("an assigned address, from "+from.name, responder(from.NS, "192.168.9.1:81"), "a")
		n.eventually("an address in the status, from "+from.name, responder(from.NS, "198.51.100.9:80"), "internet")
		n.eventually("an external IP, from "+from.name, responder(from.NS, "198.51.100.10:80"), "internet")
		n.eventually("an assigned address of no node, from "+from.name, responder(from.NS, "192.168.9.2:80"), "internet")
		n.eventually("the API server's port, from "+from.name, responder(from.NS, "192.168.9.1:6444"), "api")
		n.eventually("the agent's port, from "+from.name, responder(from.NS, "192.168.9.1:10250"), "agent")
	}
	// A Node claims the address. Now the Service that it was assigned to is served there, and the other one is not.
	n.apply("kind: Node\nmetadata: {name: there}\nstatus: {addresses: [{type: InternalIP, address: 192.168.9.2}]}\n")
	n.eventually("the Node is known", responder(c.NS, "192.168.9.2:81"), "a")
	for _, from := range clients {
		n.eventually("an address of a node that was not assigned, from "+from.name, responder(from.NS, "192.168.9.2:80"), "internet")
	}
	n.nodes.Remove("", "there")
	n.eventually("the Node is deleted", func() string { return outcome(c.Ask("tcp", "192.168.9.2:81")) }, "refused")
}

// TestEndpointsOnTheNodeAreNotUsed has slices with loopback and link-local addresses, as if validation had failed:
// traffic is not sent there, neither from the node nor from a Pod.
func TestEndpointsOnTheNodeAreNotUsed(t *testing.T) {
	n := newNode(t)
	a, c := n.addBackend("a"), n.addBackend("client")
	addLoopbackAddresses(t, n.host, "169.254.169.254")
	n.host.Listen("tcp", "127.0.0.1:9911", "local")
	n.host.Listen("tcp", "169.254.169.254:9911", "local")
	n.apply(`
kind: Service
metadata: {name: loopback}
spec: {clusterIP: 10.96.0.21, ports: [{port: 80}]}
---
kind: Service
metadata: {name: metadata}
spec: {clusterIP: 10.96.0.22, ports: [{port: 80}]}
---
kind: Service
metadata: {name: good}
spec: {clusterIP: 10.96.0.23, ports: [{port: 80}]}
---
` + slice("loopback-4", "loopback", 9911, "TCP", "127.0.0.1") + "\n---\n" + slice("metadata-4", "metadata", 9911, "TCP", "169.254.169.254") + "\n---\n" +
		slice("good-4", "good", 80, "TCP", a.v4+" here"))
	n.eventually("the rules are written", func() string { return c.Ask("tcp", "10.96.0.23:80") }, "a "+c.v4)
	for _, from := range []*nettest.NS{n.host, c.NS} {
		for _, to := range []string{"10.96.0.21:80", "10.96.0.22:80"} {
			n.eventually(to, func() string { return outcome(from.Ask("tcp", to)) }, "refused")
		}
	}
}

// TestNodeAddresses lets a Node claim addresses that no node can have. Services are not served there, even if they were
// assigned.
func TestNodeAddresses(t *testing.T) {
	n := newNodeAddresses([]netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.96.0.0/16")})
	o := nettest.Objects(t, `
kind: Node
metadata: {name: bad}
status:
  addresses:
  - {type: Hostname, address: 203.0.113.1}
  - {type: InternalDNS, address: 203.0.113.2}
  - {type: ExternalDNS, address: 203.0.113.3}
  - {type: Made up, address: 203.0.113.4}
  - {type: InternalIP, address: 127.0.0.1}
  - {type: InternalIP, address: "::1"}
  - {type: ExternalIP, address: 169.254.169.254}
  - {type: ExternalIP, address: 224.0.0.1}
  - {type: InternalIP, address: 0.0.0.0}
  - {type: InternalIP, address: 10.96.0.1}
  - {type: InternalIP, address: 10.244.3.4}
  - {type: InternalIP, address: "::ffff:10.96.0.10"}
  - {type: InternalIP, address: 192.0.2.1}
  - {type: ExternalIP, address: 198.51.100.1}
`)
	nettest.Same(t, "addresses", fmt.Sprint(n.addressesOf(o[0])), "[192.0.2.1 198.51.100.1]")
}

// TestOldestServiceKeepsTheAddress gives two Services the same address: the older one gets the traffic, whatever their names are.
func TestOldestServiceKeepsTheAddress(t *testing.T) {
	n := newNode(t)
	a, b := n.addBackend("a"), n.addBackend("b")
	service := func(name, ip, since string) string {
		return fmt.Sprintf(`
kind: Service
metadata: {name: %s, creationTimestamp: "%s", annotations: {proa.dev/load-balancer: nodes}}
spec: {type: LoadBalancer, clusterIP: %s, ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 192.168.9.1}]}}
---
`, name, since, ip)
	}
	n.apply(service("old", "10.96.0.10", "2020-01-01T00:00:00Z") + slice("old-4", "old", 80, "TCP", a.v4+" here") + "\n---\n" +
		service("another", "10.96.0.11", "2021-01-01T00:00:00Z") + slice("another-4", "another", 80, "TCP", b.v4+" here"))
	n.eventually("the younger Service is served", func() string { return b.Ask("tcp", "10.96.0.11:80") }, "b 10.244.7.1")
	n.eventually("the older Service has the address", func() string { return n.outside.Ask("tcp", "192.168.9.1:80") }, "a 10.244.7.1")
	n.services.Remove("default", "old")
	n.eventually("the older is deleted", func() string { return n.outside.Ask("tcp", "192.168.9.1:80") }, "b 10.244.7.1")
	n.apply(service("old", "10.96.0.10", "2022-01-01T00:00:00Z"))
	n.eventually("the older is created again", func() string { return b.Ask("tcp", "10.96.0.10:80") }, "a "+b.v4)
	n.eventually("now it is the younger one", func() string { return n.outside.Ask("tcp", "192.168.9.1:80") }, "b 10.244.7.1")
}

// TestNodePortsAreNotServedOnLoopback checks that node ports are not served at loopback addresses, so that route_localnet is not
// needed, which would expose programs there to other machines. If another program sets it, other machines still get no
// node port that way.
func TestNodePortsAreNotServedOnLoopback(t *testing.T) {
	n := newNode(t)
	a := n.addBackend("a")
	n.apply(`
kind: Service
metadata: {name: web}
spec: {type: NodePort, clusterIP: 10.96.0.10, ports: [{port: 80, nodePort: 30080}]}
---
` + slice("web-4", "web", 80, "TCP", a.v4+" here"))
	n.eventually("the node port", func() string { return n.outside.Ask("tcp", "192.168.9.1:30080") }, "a 10.244.7.1")
	for _, to := range []string{"127.0.0.1:30080", "[::1]:30080"} {
		n.eventually(to, func() string { return outcome(n.host.Ask("tcp", to)) }, "refused")
	}
	for _, name := range []string{"all", "default", "lo", "out0"} {
		v, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + name + "/route_localnet")
		if err != nil || strings.TrimSpace(string(v)) != "0" {
			t.Errorf("route_localnet of %s is %s (%v)", name, v, err)
		}
	}
	write := func(name string) {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/"+name+"/route_localnet", []byte("1"), 0); err != nil {
			t.Error(err)
		}
	}
	write("out0")
	n.outside.Do(func() {
		write("eth0")
		eth, err := netlink.LinkByName("eth0")
		local := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}, Table: unix.RT_TABLE_LOCAL,
			Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}
		one := &netlink.Route{Dst: &net.IPNet{IP: net.IPv4(127, 0, 0, 1).To4(), Mask: net.CIDRMask(32, 32)}, Table: unix.RT_TABLE_LOCAL,
			Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}
		if err == nil {
			_ = netlink.RouteDel(one)
			_ = netlink.RouteDel(local)
			err = netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: one.Dst, Gw: net.IPv4(192, 168, 9, 1),
				Src: net.IPv4(192, 168, 9, 2)})
		}
		if err != nil {
			t.Error(err)
		}
	})
	if got := n.outside.Ask("tcp", "127.0.0.1:30080"); strings.HasPrefix(got, "a") {
		t.Errorf("another machine reaches the node port by the loopback address: %s", got)
	}
}

// TestExternalUDPFlowsFollowEndpoints checks that UDP flows to node ports and load balancers follow a change of the endpoint.
func TestExternalUDPFlowsFollowEndpoints(t *testing.T) {
	n := newNode(t)
	a, b := n.addBackend("a"), n.addBackend("b")
	n.apply(`
kind: Service
metadata: {name: dns, annotations: {proa.dev/load-balancer: nodes}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.10, ports: [{port: 53, nodePort: 30053, protocol: UDP}]}
status: {loadBalancer: {ingress: [{ip: 192.168.9.1}]}}
---
` + slice("dns-1", "dns", 80, "UDP", a.v4+" here"))
	for _, to := range []string{"192.168.9.1:30053", "192.168.9.1:53"} {
		n.apply(slice("dns-1", "dns", 80, "UDP", a.v4+" here"))
		n.eventually(to, func() string { return n.outside.Ask("udp", to) }, "a 10.244.7.1")
		conn, err := n.outside.Dial("udp", to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		n.eventually(to+" at first", func() string { return nettest.Question(conn) }, "a 10.244.7.1")
		n.apply(slice("dns-1", "dns", 80, "UDP", b.v4+" here"))
		n.eventually(to+" with another endpoint", func() string { return nettest.Question(conn) }, "b 10.244.7.1")
	}
}

// TestDualStackLoadBalancer has a load balancer at both addresses of the node, used from outside, from a Pod, and from
// the node.
func TestDualStackLoadBalancer(t *testing.T) {
	n := newNode(t)
	a, c := n.addBackend("a"), n.addBackend("client")
	n.apply("kind: Node\nmetadata: {name: here}\nstatus: {addresses: [{type: InternalIP, address: 192.168.9.1}, {type: InternalIP, address: \"fd99::1\"}]}\n")
	service := func(policy string) string {
		return `
kind: Service
metadata: {name: web, annotations: {proa.dev/load-balancer: nodes}}
spec: {type: LoadBalancer, clusterIP: 10.96.0.10, clusterIPs: [10.96.0.10, "fd00:96::10"], externalTrafficPolicy: ` + policy + `, ports: [{port: 80}]}
status: {loadBalancer: {ingress: [{ip: 192.168.9.1, ipMode: VIP}, {ip: "fd99::1", ipMode: VIP}]}}
---
`
	}
	n.apply(service("Cluster") + slice("web-4", "web", 80, "TCP", a.v4+" here") + "\n---\n" + slice("web-6", "web", 80, "TCP",
		a.v6+" here"))
	for _, from := range []*nettest.NS{n.outside, c.NS, n.host} {
		n.eventually("IPv4", func() string { return from.Ask("tcp", "192.168.9.1:80") }, "a 10.244.7.1")
		n.eventually("IPv6", func() string { return from.Ask("tcp", "[fd99::1]:80") }, "a fd00:244:7::1")
	}
	n.apply(service("Local"))
	n.eventually("IPv4 keeps the client address", func() string { return n.outside.Ask("tcp", "192.168.9.1:80") }, "a 192.168.9.2")
	n.eventually("IPv6 keeps the client address", func() string { return n.outside.Ask("tcp", "[fd99::1]:80") }, "a fd99::2")
	n.eventually("IPv6 from a Pod keeps the client address", func() string { return c.Ask("tcp", "[fd99::1]:80") }, "a "+c.v6)
	// With the mode Proxy, the traffic must go through the load balancer itself.
	n.apply(strings.ReplaceAll(service("Cluster"), "VIP", "Proxy"))
	n.eventually("mode Proxy", func() string { return outcome(c.Ask("tcp", "192.168.9.1:80")) }, "refused")
}
