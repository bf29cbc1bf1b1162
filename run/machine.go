package run

import (
	"context"
	"net/netip"
	"sync"
)

// Machine is what a process may run beside its control plane: nodes of this machine that run containers, and the proxy
// for Ingresses. Package machine implements it. A control plane in a test runs without it, and links nothing of it.
type Machine interface {
	// Open prepares the machine before the server listens, and completes the settings of the node.
	Open(s *Server) error
	// NodeAddresses returns the addresses of a further node of this machine; nil for a node of another machine.
	NodeAddresses(node string) []netip.Addr
	// Start starts the agents of the nodes, or adopts those that run, and keeps them running until ctx ends. They go on without it.
	Start(ctx context.Context, wg *sync.WaitGroup)
}
