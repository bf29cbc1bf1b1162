package remote

import (
	"context"
	"time"

	"proa.dev/kinds/kind"
)

// patience is how long a change may take to arrive before the server is asked what there is.
const patience = 50 * time.Millisecond

// Unreadable returns nothing: what the server cannot decode it says to administrators.
func (v *view) Unreadable(string) []string { return nil }

// Reach waits until the view holds every change up to a revision; 0 stands for every write that was acknowledged before. A
// watch tells of changes only, and seldom how far it has come. So what there is is read, and the view has reached it when it
// holds that, or more.
func (v *view) Reach(ctx context.Context, rev int64) error {
	if rev > 0 {
		soon, stop := context.WithTimeout(ctx, patience)
		err := v.wait(soon, func() bool { return v.rev >= rev })
		stop()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	items, at, err := v.fetch(ctx)
	if err != nil {
		return err
	}
	return v.wait(ctx, func() bool {
		if v.rev < at && !v.holds(items, at) {
			return false
		}
		v.rev = max(v.rev, at)
		return true
	})
}

// holds says that the view is at least as new as a state that was read.
func (v *view) holds(items []kind.Object, at int64) bool {
	there := make(map[string]bool, len(items))
	for _, o := range items {
		key := keyOf(o.GetNamespace(), o.GetName())
		there[key] = true
		if e, found := v.objects.Get(entry{key: key}); !found || revOf(e.object) < revOf(o) {
			return false
		}
	}
	whole := true
	v.objects.Ascend(func(e entry) bool {
		whole = there[e.key] || revOf(e.object) > at
		return whole
	})
	return whole
}

// wait waits until something is true of the view. It is asked with the lock held.
func (v *view) wait(ctx context.Context, done func() bool) error {
	for {
		v.mu.Lock()
		if done() {
			v.mu.Unlock()
			return nil
		}
		if v.moved == nil {
			v.moved = make(chan struct{})
		}
		moved := v.moved
		v.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-moved:
		}
	}
}
