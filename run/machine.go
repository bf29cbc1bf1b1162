package run

import (
	"context"
	"net/netip"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Machine is what a process may have beside its control plane: nodes of this machine that run containers, and the door for
// Ingresses. Package machine has the one there is. A control plane in a test needs none, and links nothing of it.
type Machine interface {
	// Open makes what must be there before the server listens, and completes what is said about the node.
	Open(s *Server) error
	// NodeAddresses are the addresses that it has given to a further node of this machine; nil for a node that it does not run.
	NodeAddresses(node string) []netip.Addr
	// Collectors are its numbers, which the server shows with its own.
	Collectors() []prometheus.Collector
	// Start has everything run until ctx ends.
	Start(ctx context.Context, wg *sync.WaitGroup)
}
