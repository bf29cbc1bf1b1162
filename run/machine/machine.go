// Package machine is what a proa process runs on its machine beside the control plane: the node agent, further nodes in
// network namespaces, and the proxy for Ingresses and Gateways; or, in a process of its own, an agent alone. The
// control plane itself is package run, which does not import this one.
package machine

import (
	"context"
	"net/netip"
	"path/filepath"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"proa.dev/network/firstanswer"
	"proa.dev/network/httpproxy"
	"proa.dev/network/nodebridge"
	"proa.dev/node/subprocess"
	"proa.dev/run"
	"proa.dev/run/machine/nodefolder"
)

// Machine runs the nodes of this machine for a control plane. The zero value is ready for a server that is about to
// start.
type Machine struct {
	*run.Server
	// bridge is the bridge that several nodes of this machine share; nil for one node.
	bridge *nodebridge.Config
	// ingresses are the metrics of Ingresses; nil where they are not served.
	ingresses *httpproxy.Metrics
	// gateways are the metrics of the routes of Gateways; nil where they are not served.
	gateways *httpproxy.Metrics
	// answers records the first answers of Pods on the node of this process; nil if nothing is recorded.
	answers *firstanswer.Watcher
}

// Open creates the bridge between the nodes, at which the server listens too.
func (s *Machine) Open(of *run.Server) error {
	s.Server = of
	if s.ServesIngresses() {
		s.ingresses = httpproxy.NewMetrics("ingress")
	}
	if s.ServesGateways() {
		s.gateways = httpproxy.NewMetrics("route")
	}
	if s.TraceRecords > 0 {
		s.answers = firstanswer.New(firstanswer.Config{Record: s.RecordHops, Log: s.Log()})
	}
	return s.openBridge()
}

// NodeAddresses returns the addresses of a further node on the bridge of this machine; nil for any other node.
func (s *Machine) NodeAddresses(node string) []netip.Addr {
	if s.bridge == nil {
		return nil
	}
	for _, f := range nodefolder.Wanted(&s.Config.Config) {
		if f.Name == node {
			return s.bridge.Addresses(f.Number)
		}
	}
	return nil
}

// Collectors returns the metrics of Ingresses and of the routes of Gateways.
func (s *Machine) Collectors() (out []prometheus.Collector) {
	for _, m := range []*httpproxy.Metrics{s.ingresses, s.gateways} {
		if m != nil {
			out = append(out, m)
		}
	}
	return out
}

// Start runs the nodes and the proxies until ctx ends.
func (s *Machine) Start(ctx context.Context, wg *sync.WaitGroup) {
	if err := nodefolder.StoreServerSettings(&s.Config.Config); err != nil {
		s.Log().ErrorContext(ctx, "the settings could not be stored for \"proa status\"", "err", err)
	}
	if s.Node.Name != "" {
		wg.Go(func() { s.Persist(ctx, "node", func() error { return s.runNode(ctx) }) })
		s.beginIngress(ctx, wg)
		s.beginGateway(ctx, wg)
	}
	// This bounds the log of a server that "proa up" has started. Others log to their standard error.
	wg.Go(func() {
		subprocess.LimitLog(ctx, filepath.Join(s.DataDir, "server.log"), subprocess.MaxLogBytes, s.Log())
	})
	wg.Go(func() { s.Persist(ctx, "further-nodes", func() error { return s.furtherNodes(ctx) }) })
}
