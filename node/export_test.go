package node

import "context"

// GoDown simulates a shutdown of the machine.
func (a *Agent) GoDown(ctx context.Context) { a.shutdown.Begin(ctx) }
