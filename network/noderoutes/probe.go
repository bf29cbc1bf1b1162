package noderoutes

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/wait"
	"proa.dev/kinds/core/nodekind"
)

// A node probes the others over the Pod network, from the address of its own bridge to that of theirs, and publishes
// which do not answer: two nodes can both be ready while their Pods cannot reach each other, for instance because a
// firewall drops the packets of tunnels.

const (
	// probeEvery is how often other nodes are probed, probeTimeout how long one has to answer.
	probeEvery   = 30 * time.Second
	probeTimeout = 3 * time.Second
	// maxProbes is how many nodes are probed in one round; the rounds go through all of them.
	maxProbes = 32
	// maxSilent is how many probes in a row may fail: a node that has died is known as not ready before that.
	maxSilent = 2
	// maxUnreachable bounds the names that are published, since every node reads every Node.
	maxUnreachable = 32
	// probePort is the port of agents. A refused connection counts as an answer too.
	probePort = "10250"
)

// gateway returns the address of the bridge of a node: the first after that of the network.
func gateway(p netip.Prefix) netip.Addr { return p.Masked().Addr().Next() }

// probePeers probes other nodes until ctx ends. It publishes nodes with more than maxSilent failed probes in a row as
// unreachable.
func (m *Mesh) probePeers(ctx context.Context) {
	silent := map[string]int{}
	every := m.probeEvery()
	published, next := "\x00", 0
	for {
		if wait.Sleep(ctx, every) != nil {
			return
		}
		self, others := m.peers()
		if len(self.networks) == 0 {
			continue
		}
		round := make([]node, 0, maxProbes)
		for i := range min(len(others), maxProbes) {
			round = append(round, others[(next+i)%len(others)])
		}
		next += len(round)
		m.probeRound(ctx, self, round, silent)
		list := unreachable(others, silent)
		if text := strings.Join(list, ","); text != published && ctx.Err() == nil {
			if err := m.Publish(ctx, nodekind.UnreachableAnnotation, text); err != nil {
				m.Log.Warn("the list of unreachable nodes cannot be published", "err", err)
				continue
			}
			if text != "" {
				m.Log.Error("Pods of this node cannot reach those of other nodes; check that UDP port 8472 and packets of Pods are allowed between the nodes", "nodes", list)
			}
			published = text
		}
	}
}

// unreachable returns the names of nodes with too many failed probes. It forgets nodes that are not probed any more.
func unreachable(others []node, silent map[string]int) (list []string) {
	known := map[string]bool{}
	for _, n := range others {
		if known[n.name] = true; silent[n.name] > maxSilent && len(list) < maxUnreachable {
			list = append(list, n.name)
		}
	}
	maps.DeleteFunc(silent, func(name string, _ int) bool { return !known[name] })
	return list
}

// peers returns this node and the other nodes to probe, by name: those that have a network and publish their links,
// which simulated nodes do not. Nodes that are not ready or unreachable for the server are left out: all nodes would
// report them.
func (m *Mesh) peers() (self node, others []node) {
	for o := range m.Nodes.List("") {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		switch x := readNode(n); {
		case x.name == m.NodeName:
			self = x
		case len(x.networks) > 0 && len(x.addrs) > 0 && x.published && !isTainted(n):
			others = append(others, x)
		}
	}
	slices.SortFunc(others, func(a, b node) int { return strings.Compare(a.name, b.name) })
	return self, others
}

// isTainted reports whether a Node has a taint of the node lifecycle controller. Agents do not see the conditions of
// other Nodes.
func isTainted(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
	})
}

// probeRound probes some nodes at once and counts the failures of each.
func (m *Mesh) probeRound(ctx context.Context, self node, round []node, silent map[string]int) {
	var wg sync.WaitGroup
	answers := make([]error, len(round))
	for i, n := range round {
		wg.Go(func() { answers[i] = m.probe(ctx, gateway(self.networks[0]), gateway(n.networks[0])) })
	}
	wg.Wait()
	for i, n := range round {
		switch err := answers[i]; {
		case errors.Is(err, syscall.EADDRNOTAVAIL): // this node has no bridge yet
		case err != nil && !errors.Is(err, syscall.ECONNREFUSED):
			silent[n.name]++
		default:
			delete(silent, n.name)
		}
	}
}

func (m *Mesh) probeEvery() time.Duration {
	if m.ProbeEvery > 0 {
		return m.ProbeEvery
	}
	return probeEvery
}

func (m *Mesh) probe(ctx context.Context, from, to netip.Addr) error {
	ctx, stop := context.WithTimeout(ctx, min(probeTimeout, 10*m.probeEvery()))
	defer stop()
	dial := m.Dial
	if dial == nil {
		dial = func(ctx context.Context, d *net.Dialer, addr string) (net.Conn, error) {
			return d.DialContext(ctx, "tcp", addr)
		}
	}
	c, err := dial(ctx, &net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))},
		net.JoinHostPort(to.String(), probePort))
	if err == nil {
		err = c.Close()
	}
	return err
}
