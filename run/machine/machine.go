// Package machine is what a proa process has on its machine beside the control plane: the node agent, further nodes in network
// namespaces, what they share, and the door for Ingresses; or, in a process of its own, an agent alone. It also ends and removes
// all that. The control plane itself is package run, which knows nothing of this one.
package machine

import (
	"context"
	"net/netip"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/network/link"
	"proa.dev/network/route"
	"proa.dev/node/subprocess"
	"proa.dev/run"
)

// Machine is this machine as a control plane uses it. The zero value is for one that is about to start.
type Machine struct {
	*run.Server
	// link is what several nodes of this machine share; nil for one.
	link *link.Config
	// ingresses are the numbers of Ingresses; nil where they are not served.
	ingresses *route.Metrics
	// gateways are the numbers of the routes of Gateways; nil where they are not served.
	gateways *route.Metrics
}

// Open makes the link between the nodes, which the server listens on too.
func (s *Machine) Open(of *run.Server) error {
	s.Server = of
	if s.ServesIngresses() {
		s.ingresses = route.NewMetrics("ingress")
	}
	if s.ServesGateways() {
		s.gateways = route.NewMetrics("route")
	}
	return s.openLink()
}

// NodeAddresses are the addresses of a further node on the link of this machine; nil for any other node.
func (s *Machine) NodeAddresses(node string) []netip.Addr {
	if s.link == nil {
		return nil
	}
	for _, f := range wanted(&s.Config) {
		if f.name == node {
			return s.link.Addresses(f.number)
		}
	}
	return nil
}

// Collectors are the numbers of Ingresses and of the routes of Gateways.
func (s *Machine) Collectors() (out []prometheus.Collector) {
	for _, m := range []*route.Metrics{s.ingresses, s.gateways} {
		if m != nil {
			out = append(out, m)
		}
	}
	return out
}

// Start runs the nodes.
func (s *Machine) Start(ctx context.Context, wg *sync.WaitGroup) {
	if s.Node.Name != "" {
		wg.Go(func() { s.Persist(ctx, "node", func() error { return s.runNode(ctx) }) })
		s.beginIngress(ctx, wg)
		s.beginGateway(ctx, wg)
	}
	// "proa up" lets the server write there; who starts it otherwise takes care of its words.
	wg.Go(func() { subprocess.BoundLog(ctx, filepath.Join(s.DataDir, "server.log"), subprocess.LogBytes, s.Log()) })
	wg.Go(func() { s.Persist(ctx, "further-nodes", func() error { return s.furtherNodes(ctx) }) })
}
