package remote

import (
	"context"
	"time"

	"proa.dev/kinds/kind"
)

// reachTimeout is how long Reach waits for a change to arrive by the watch before it lists the objects.
const reachTimeout = 50 * time.Millisecond

// Unreadable returns nothing: the server reports objects that it cannot decode to administrators only.
func (v *view) Unreadable(string) []string { return nil }

// Reach waits until the view contains every change up to a revision; 0 stands for every write that was acknowledged
// before the call. A watch delivers changes, but only rarely a bookmark. So after a while the objects are listed, and
// the view has reached the revision of the list as soon as it contains the same objects, or newer ones.
func (v *view) Reach(ctx context.Context, rev int64) error {
	if rev > 0 {
		short, stop := context.WithTimeout(ctx, reachTimeout)
		err := v.waitUntil(short, func() bool { return v.rev >= rev })
		stop()
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	items, at, err := v.fetch(ctx)
	if err != nil {
		return err
	}
	return v.waitUntil(ctx, func() bool {
		if v.rev < at && !v.holds(items, at) {
			return false
		}
		v.rev = max(v.rev, at)
		return true
	})
}

// holds reports whether the view is at least as new as a list of objects at a revision.
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

// waitUntil waits until a condition of the view holds. The condition is called with the lock held.
func (v *view) waitUntil(ctx context.Context, done func() bool) error {
	for {
		v.mu.Lock()
		if done() {
			v.mu.Unlock()
			return nil
		}
		if v.changed == nil {
			v.changed = make(chan struct{})
		}
		changed := v.changed
		v.mu.Unlock()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
		}
	}
}
