package peerrecords

import (
	"context"
	"sync/atomic"
)

// maxAsks is how often other servers are asked for one explanation, which may read much.
const maxAsks = 16

type asksKey struct{}

// WithFewAsks returns a context for a request that asks for much, one after the other: other servers are asked at first, and not any more
// when one of them does not answer, which takes time. Later answers say that they were not asked.
func WithFewAsks(ctx context.Context) context.Context {
	left := &atomic.Int32{}
	left.Store(maxAsks)
	return context.WithValue(ctx, asksKey{}, left)
}

// mayAsk tells whether other servers may be asked once more for a request, and if not what is missing then.
func mayAsk(ctx context.Context) (bool, []Missing) {
	left, isBound := ctx.Value(asksKey{}).(*atomic.Int32)
	if !isBound || left.Add(-1) >= 0 {
		return true, nil
	}
	return false, []Missing{{Text: "all of them: one did not answer before, or there is too much to ask"}}
}

// noteSilence ends the questions of a request if a server that runs did not answer.
func noteSilence(ctx context.Context, missing []Missing) {
	left, isBound := ctx.Value(asksKey{}).(*atomic.Int32)
	for _, m := range missing {
		if isBound && m.Until.IsZero() {
			left.Store(0)
		}
	}
}
