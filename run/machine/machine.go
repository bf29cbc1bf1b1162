// Package machine is both sides of the nodes of a machine. A server starts the agents of its nodes, each in a process of its own,
// watches them and adopts those that an earlier server has left; Machine is that side. RunAgent is the other: the agent of a node and, on
// the first node of a server, the proxy for Ingresses and Gateways. The control plane itself is package run, which does not import this
// one.
package machine

import (
	"context"
	"net/netip"
	"path/filepath"
	"sync"

	"proa.dev/network/nodebridge"
	"proa.dev/node/subprocess"
	"proa.dev/run"
	"proa.dev/run/machine/nodefolder"
)

// Machine runs the agents of this machine's nodes for a control plane. The zero value is ready for a server that is about to
// start.
type Machine struct {
	*run.Server
	// bridge is the bridge that several nodes of this machine share; nil for one node.
	bridge *nodebridge.Config
}

// Open creates the bridge between the nodes, at which the server listens too.
func (s *Machine) Open(of *run.Server) error {
	s.Server = of
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

// Start starts or adopts the agents of the nodes, and keeps them running until ctx ends.
func (s *Machine) Start(ctx context.Context, wg *sync.WaitGroup) {
	if err := nodefolder.StoreServerSettings(&s.Config.Config); err != nil {
		s.Log().ErrorContext(ctx, "the settings could not be stored for \"proa status\"", "err", err)
	}
	if s.Node.Name != "" {
		s.createIngressClass(ctx)
		wg.Go(func() { s.keepAgent(ctx, nodefolder.First(s.DataDir, s.Node.Name)) })
	}
	// This bounds the log of a server that "proa up" has started. Others log to their standard error.
	wg.Go(func() {
		subprocess.LimitLog(ctx, filepath.Join(s.DataDir, "server.log"), subprocess.MaxLogBytes, s.Log())
	})
	wg.Go(func() { s.Persist(ctx, "further-nodes", func() error { return s.furtherNodes(ctx) }) })
}
