package run

import (
	"context"

	"proa.dev/run/parthealth"
)

// Persist runs a part of the process and restarts it with back-off whenever it ends, until ctx ends. A part that cannot
// start, for example because the store did not answer in time, is no reason to end the server.
func (s *Server) Persist(ctx context.Context, name string, part func() error) {
	parthealth.Persist(ctx, s.log, name, func() error { return s.parts.Run(ctx, name, part) })
}

// RunPart runs a part of the process once, for a caller that restarts it, and reports to "proa status" when it has
// ended.
func (s *Server) RunPart(ctx context.Context, name string, part func() error) error {
	return s.parts.Run(ctx, name, part)
}
