package client

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// WriteSet is a write set: it travels with the context of one reconciliation and collects what that has written, and which
// write caused it. A controller waits until its views have reached the revisions of the write set before it reconciles
// the same key again.
type WriteSet struct {
	// CauseUID and CauseRev identify the write whose event triggered the work.
	CauseUID types.UID
	CauseRev int64

	mu        sync.Mutex // guards what follows
	revisions map[schema.GroupResource]int64
}

type writeSetKey struct{}

// WithWriteSet returns a context whose writes are added to w.
func WithWriteSet(ctx context.Context, w *WriteSet) context.Context {
	return context.WithValue(ctx, writeSetKey{}, w)
}

// WriteSetOf returns the write set of a context, or nil.
func WriteSetOf(ctx context.Context) *WriteSet {
	w, _ := ctx.Value(writeSetKey{}).(*WriteSet)
	return w
}

// Add adds the revision of a write. Implementations of Writer call it; revision 0 says that the outcome of the write
// is unknown. Adding to a nil write set does nothing.
func (w *WriteSet) Add(gr schema.GroupResource, rev int64) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.revisions == nil {
		w.revisions = map[schema.GroupResource]int64{}
	}
	if have, ok := w.revisions[gr]; rev == 0 || !ok || (have != 0 && have < rev) {
		w.revisions[gr] = rev
	}
}

// Revisions returns the resources that were written, each with the revision that a view must Reach to contain the writes.
func (w *WriteSet) Revisions() map[schema.GroupResource]int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.revisions
}
