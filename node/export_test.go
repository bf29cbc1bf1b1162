package node

import "context"

// GoDown does what happens when the machine goes down.
func (a *Agent) GoDown(ctx context.Context) { a.shutdown.Begin(ctx) }
