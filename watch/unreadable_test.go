package watch_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/watch"
)

// TestUndecodableObjectIsNotReportedDeleted checks that watchers get no event for an object that can no longer be decoded, and get
// its next readable state or its deletion, also if they are resumed at a past revision.
func TestUndecodableObjectIsNotReportedDeleted(t *testing.T) {
	w := newCacheTest(t)
	first := w.put("a", 0)
	rev := w.put("b", 0)
	c := w.cache()
	live, _, _, err := c.Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, watch.Start{After: rev})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	write := func(name string, value []byte, rev int64) int64 {
		t.Helper()
		rev, err := w.store.Commit(t.Context(), kv.Write{Key: w.def.Key("ns", name), Value: value, Rev: rev})
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	brokenA := write("a", []byte("damaged"), first)
	brokenB := write("b", []byte("damaged"), rev)
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	key := w.def.Key("ns", "a")
	if _, found := c.Get(key); found {
		t.Error("an old state is served as the present one")
	}
	if err := c.Unreadable(key); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("the error does not name the key: %v", err)
	}
	if keys := c.UnreadableKeys(w.def.Prefix()); len(keys) != 2 || keys[0] != key {
		t.Errorf("the keys are %v", keys)
	}
	again := w.put("a", brokenA)
	write("b", nil, brokenB)
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.Unreadable(key) != nil || len(c.UnreadableKeys("")) != 0 {
		t.Error("what is written again or deleted still counts as unreadable")
	}
	want := "MODIFIED a DELETED b"
	if got := nextEvents(t, live, 2); got != want {
		t.Errorf("a watcher got %q, want %q", got, want)
	}
	// A cache that was started later reads past changes from the store.
	past, _, _, err := w.cache().Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, watch.Start{After: rev})
	if err != nil {
		t.Fatal(err)
	}
	defer past.Close()
	if got := nextEvents(t, past, 2); got != want {
		t.Errorf("a watcher from a past revision got %q, want %q", got, want)
	}
	// If the last readable state is not known, the watcher has to start again.
	if _, _, _, err := w.cache().Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, watch.Start{After: again - 1}); err == nil {
		t.Error("a watcher goes on after a state that it may have seen and that is not known")
	}
}

// TestDeletionOfUndecodableObjectIsDelivered checks that clients that have seen an object on another server or before a
// restart learn of its deletion from a cache that could never decode it.
func TestDeletionOfUndecodableObjectIsDelivered(t *testing.T) {
	w := newCacheTest(t)
	rev := w.put("a", 0)
	c := watch.New(watch.Config{
		Prefix: w.def.Prefix(), Source: w.store, Log: slog.New(slog.DiscardHandler),
		Decode: func(p kv.Pair) (kind.Object, error) { return nil, kv.NewUnreadable(p, errors.New("no key")) },
	})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	defer func() { stop(); wg.Wait() }()
	from := watch.Start{After: rev}
	live, _, _, err := c.Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, from)
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	if _, err := w.store.Commit(t.Context(), kv.Write{Key: w.def.Key("ns", "a"), Rev: rev}); err != nil {
		t.Fatal(err)
	}
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := make(chan time.Time)
	close(now)
	if _, err := live.Next(t.Context(), now, nil); !errors.Is(err, watch.ErrReloaded) {
		t.Errorf("the watcher goes on as if nothing had happened: %v", err)
	}
	if _, _, _, err := c.Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, from); err == nil {
		t.Error("a resumed watch gets no error")
	}
}

// nextEvents returns the next n events of a watcher as text, or fewer after a timeout.
func nextEvents(t *testing.T, w *watch.Watcher, n int) string {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var out []string
	for len(out) < n {
		items, err := w.Next(ctx, nil, nil)
		if err != nil {
			t.Errorf("after %v: %v", out, err)
			break
		}
		for _, it := range items {
			out = append(out, it.As.String()+" "+it.Event.Object(it.As).GetName())
		}
	}
	return strings.Join(out, " ")
}

// TestRereadFindsNewlyDecodableObjects checks that Reread finds an object that can be decrypted with a new key.
func TestRereadFindsNewlyDecodableObjects(t *testing.T) {
	w := newCacheTest(t)
	w.put("a", 0)
	var locked atomic.Bool
	locked.Store(true)
	c := runCache(w, func(p kv.Pair) (kind.Object, error) {
		if locked.Load() {
			return nil, kv.NewUnreadable(p, errors.New("no key"))
		}
		return w.codec.Load(w.def, p)
	})
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(c.UnreadableKeys("")) != 1 {
		t.Fatal("it can be read")
	}
	locked.Store(false)
	live, _, _, err := c.Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, watch.Start{State: true})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Close()
	c.Reread()
	if _, err := live.Next(t.Context(), nil, nil); err == nil {
		t.Error("the watcher goes on")
	}
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, found := c.Get(w.def.Key("ns", "a")); !found {
		t.Error("it is not found")
	}
}
