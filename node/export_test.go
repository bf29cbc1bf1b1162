package node

import "context"

// BeginShutdown starts a graceful shutdown of the node, as when the machine shuts down.
func (a *Agent) BeginShutdown(ctx context.Context) { a.shutdown.Begin(ctx) }
