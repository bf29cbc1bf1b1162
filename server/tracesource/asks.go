package tracesource

import (
	"context"
	"sync/atomic"

	"proa.dev/hop"
	"proa.dev/server/peerrecords"
	"proa.dev/trace"
)

// maxAsks is how often other servers are asked for one explanation, which may read many traces.
const maxAsks = 8

type asksKey struct{}

// WithFewAsks returns a context for a request that reads many traces: for the first ones other servers are asked, unless one of them does
// not answer, which takes time. The others have the records of this server alone.
func WithFewAsks(ctx context.Context) context.Context {
	left := &atomic.Int32{}
	left.Store(maxAsks)
	return context.WithValue(ctx, asksKey{}, left)
}

// recordsOf returns the records of this server, together with those of the others that belong to objects, and the servers that did not
// answer or were not asked.
func (s *Source) recordsOf(ctx context.Context, objects []trace.Ref) ([]hop.Record, []peerrecords.Missing) {
	left, isBound := ctx.Value(asksKey{}).(*atomic.Int32)
	if !isBound || s.Peers == nil {
		return s.Peers.Add(ctx, s.records(), objects)
	}
	if left.Add(-1) < 0 {
		return s.records(), []peerrecords.Missing{{Text: "all of them: one did not answer before, or there is too much to ask"}}
	}
	records, missing := s.Peers.Add(ctx, s.records(), objects)
	for _, m := range missing {
		if m.Until.IsZero() { // it runs, and did not answer
			left.Store(0)
		}
	}
	return records, missing
}
