package noderoutes

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/internal/textcase"
	"proa.dev/kinds/kind"
	"proa.dev/network/interfaces"
	"proa.dev/network/nettest"
)

// TestTrust runs the scripts in testdata/trust: each line is a command, and the indented lines below it are its output.
//
//	pods CIDR...         the ranges of the cluster's Pods
//	services CIDR...     the ranges of the cluster's Services
//	node NAME [age=N] [uid=U] [CIDR...] [ADDRESS...]    a Node, created N minutes after the first; its UID is its name by default
//	gone NAME            a Node is deleted
//	restart              the agent restarts without its state
//	decide               shows the routes of node "here", and what it refuses
func TestTrust(t *testing.T) {
	textcase.Stories(t, "testdata/trust/*.txt", func(t *testing.T) func([]string) string {
		t.Helper()
		s := &trustScript{nodes: map[string]node{}}
		return func(words []string) string { return s.run(t, words) }
	})
}

// trustScript is the state of a script.
type trustScript struct {
	limits limits
	nodes  map[string]node
	held   map[netip.Prefix]types.UID
}

func (s *trustScript) run(t *testing.T, words []string) string {
	t.Helper()
	prefixes := func() (out []netip.Prefix) {
		for _, w := range words[1:] {
			out = append(out, netip.MustParsePrefix(w))
		}
		return out
	}
	switch words[0] {
	case "pods":
		s.limits.pods = prefixes()
	case "services":
		s.limits.services = prefixes()
	case "node":
		n := node{name: words[1], uid: types.UID(words[1])}
		for _, w := range words[2:] {
			switch k, v, _ := strings.Cut(w, "="); {
			case k == "age":
				d, err := time.ParseDuration(v + "m")
				if err != nil {
					t.Fatal(err)
				}
				n.since = time.Time{}.Add(d)
			case k == "uid":
				n.uid = types.UID(v)
			case strings.Contains(w, "/"):
				n.networks = append(n.networks, netip.MustParsePrefix(w))
			default:
				n.addrs = append(n.addrs, netip.MustParseAddr(w))
			}
		}
		s.nodes[n.name] = n
	case "gone":
		delete(s.nodes, words[1])
	case "restart":
		s.held = nil
	case "decide":
		var nodes []node
		for _, n := range s.nodes {
			nodes = append(nodes, n)
		}
		link := netip.MustParsePrefix("192.0.2.0/24")
		w := decide(question{self: "here", nodes: nodes, onLink: link.Contains, limits: s.limits, held: s.held})
		s.held = w.held
		slices.SortStableFunc(w.refused, func(a, b refusal) int { return strings.Compare(a.node, b.node) })
		return strings.Join(describe(w), "\n") + "\n"
	default:
		t.Fatalf("unknown command: %q", words)
	}
	return ""
}

// installedRoutes returns the routes of the namespace that have proa's protocol number.
func installedRoutes(t *testing.T, ns *nettest.NS) string {
	t.Helper()
	var list []string
	ns.Do(func() {
		routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Protocol: 80}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			t.Error(err)
		}
		for _, r := range routes {
			list = append(list, r.Dst.String())
		}
	})
	slices.Sort(list)
	return strings.Join(list, " ")
}

// tunnelEnds returns the machines that the tunnel of the namespace sends packets to.
func tunnelEnds(ns *nettest.NS) string {
	var list []string
	ns.Do(func() {
		if link, err := netlink.LinkByName(DefaultDevice); err == nil {
			entries, _ := netlink.NeighList(link.Attrs().Index, unix.AF_BRIDGE)
			for _, n := range entries {
				list = append(list, n.IP.String())
			}
		}
	})
	slices.Sort(list)
	return strings.Join(list, " ")
}

func nodeWithCIDRs(name, addr, since string, cidrs ...string) string {
	return fmt.Sprintf("kind: Node\nmetadata: {name: %s, uid: %s, creationTimestamp: %q}\nspec: {podCIDRs: [%q]}\nstatus: {addresses: [{type: InternalIP, address: %q}]}\n",
		name, name, since, strings.Join(cidrs, `", "`), addr)
}

// TestNoRoutesOutOfTheCluster has Nodes that claim networks of others for their Pods. The kernel gets no such route,
// however the Node would be reached, and those of an older version are removed when the agent starts, even if the Node
// was deleted while it was down.
func TestNoRoutesOutOfTheCluster(t *testing.T) {
	nettest.Need(t)
	for _, mode := range []Mode{Auto, Tunnels} {
		t.Run(string(mode), func(t *testing.T) {
			a, b := newTestNode(t, 1), newTestNode(t, 2)
			nettest.Wire(t, nettest.End{NS: a.ns, Name: "eth0", Addrs: []string{"192.0.2.1/24"}},
				nettest.End{NS: b.ns, Name: "eth0", Addrs: []string{"192.0.2.2/24"}})
			a.ns.Do(func() {
				for _, to := range []string{"203.0.113.5/32", "10.96.0.0/12", "128.0.0.0/1", "10.244.9.0/24"} {
					r := &netlink.Route{Dst: interfaces.IPNet(netip.MustParsePrefix(to)), Gw: net.ParseIP("192.0.2.66"), Protocol: 80}
					if err := netlink.RouteAdd(r); err != nil {
						t.Error(err)
					}
				}
			})
			nodes := nettest.NewView()
			put := func(text string) {
				for _, o := range nettest.Objects(t, text) {
					nodes.Put(o)
				}
			}
			put(nodeObject(1, "192.0.2.1") + "\n---\n" + nodeObject(2, "192.0.2.2") + "\n---\n" +
				nodeWithCIDRs("a1", "192.0.2.61", "2026-01-02T00:00:00Z", "203.0.113.5/32") + "\n---\n" + nodeWithCIDRs("a2", "192.0.2.62",
				"2026-01-02T00:00:00Z", "10.96.0.0/12") + "\n---\n" +
				nodeWithCIDRs("a3", "192.0.2.63", "2026-01-02T00:00:00Z", "128.0.0.0/1") + "\n---\n" + nodeWithCIDRs("a4", "192.0.2.64",
				"2026-01-02T00:00:00Z", "10.244.2.0/24"))
			var events sync.Map
			a.runMeshWith(t, Config{NodeName: "n1", Nodes: nodes, Mode: mode, Networks: clusterNetworks(),
				Services: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}, Alone: true,
				RecordEvent: func(about kind.Object, reason, _ string) { events.Store(about.GetName()+" "+reason, true) }})
			eventually(t, "routes", func() string { return installedRoutes(t, a.ns) }, "10.244.2.0/24 fd00:244:2::/64")
			if t.Failed() {
				return
			}
			eventually(t, "events", func() string {
				var list []string
				events.Range(func(k, _ any) bool { list = append(list, k.(string)); return true })
				slices.Sort(list)
				return strings.Join(list, ", ")
			}, "a1 RouteRefused, a2 RouteRefused, a3 RouteRefused, a4 RouteRefused")
			b.runMesh(t, 2, nodes, mode)
			eventually(t, "the first owner keeps the network", func() string { return a.pod.Ask("tcp", nettest.At(b.podAddr[4], 80)) },
				"pod2 "+a.podAddr[4])
			nodes.Remove("", "n2")
			put(nodeWithCIDRs("a5", "192.0.2.65", "2026-01-02T00:00:00Z", "10.244.5.0/24"))
			// The network of the deleted Node is free for the next.
			eventually(t, "a node is created and another deleted", func() string { return installedRoutes(t, a.ns) },
				"10.244.2.0/24 10.244.5.0/24")
			if mode == Tunnels {
				eventually(t, "ends of the tunnel", func() string { return tunnelEnds(a.ns) }, "192.0.2.64 192.0.2.65")
			}
			nodes.Remove("", "a5")
			eventually(t, "the other node is deleted too", func() string { return installedRoutes(t, a.ns) }, "10.244.2.0/24")
			if mode == Tunnels {
				eventually(t, "ends of the tunnel", func() string { return tunnelEnds(a.ns) }, "192.0.2.64")
			}
			nodes.Remove("", "a4")
			eventually(t, "all nodes are deleted", func() string { return installedRoutes(t, a.ns) }, "")
			eventually(t, "the tunnel is removed", func() string {
				var remaining []string
				a.ns.Do(func() {
					if _, err := netlink.LinkByName(DefaultDevice); err == nil {
						remaining = append(remaining, DefaultDevice)
					}
				})
				return strings.Join(remaining, " ")
			}, "")
		})
	}
}
