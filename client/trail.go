package client

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Trail goes with the context of a piece of work: what caused it, and what it has written. A loop that keeps it can wait
// until its views show its own writes, and needs no other memory of them.
type Trail struct {
	// CauseUID and CauseRev name the write whose event led to the work.
	CauseUID types.UID
	CauseRev int64

	mu    sync.Mutex // guards what follows
	wrote map[schema.GroupResource]int64
}

type trailKey struct{}

// WithTrail makes the writes of a context leave a trail.
func WithTrail(ctx context.Context, t *Trail) context.Context {
	return context.WithValue(ctx, trailKey{}, t)
}

// TrailOf is the trail of a context, or nil.
func TrailOf(ctx context.Context) *Trail {
	t, _ := ctx.Value(trailKey{}).(*Trail)
	return t
}

// Wrote notes the revision of a write. Implementations of Writer call it; 0 says that the outcome is not known.
func (t *Trail) Wrote(gr schema.GroupResource, rev int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.wrote == nil {
		t.wrote = map[schema.GroupResource]int64{}
	}
	if have, ok := t.wrote[gr]; rev == 0 || !ok || (have != 0 && have < rev) {
		t.wrote[gr] = rev
	}
}

// Writes are the resources that were written, each with the revision a view must Reach to show it all.
func (t *Trail) Writes() map[schema.GroupResource]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.wrote
}
