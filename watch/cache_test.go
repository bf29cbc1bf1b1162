package watch_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	"proa.dev/store"
	"proa.dev/watch"
)

// cacheTest is a test with a store of ConfigMaps.
type cacheTest struct {
	*testing.T
	store *store.Etcd
	codec *codec.Codec
	def   *kind.Def
}

func newCacheTest(t *testing.T) *cacheTest {
	t.Helper()
	s, err := store.Embed(t.Context(), store.Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return &cacheTest{T: t, store: s, codec: codec.New(scheme), def: core.ConfigMaps()}
}

// cache starts a cache and stops it when the test ends.
func (w *cacheTest) cache() *watch.Cache {
	c := watch.New(watch.Config{
		Prefix: w.def.Prefix(), Source: w.store, Log: slog.New(slog.DiscardHandler),
		Decode: func(p kv.Pair) (kind.Object, error) { return w.codec.Load(w.def, p) },
		Index:  func(o kind.Object) string { return o.GetLabels()["node"] },
	})
	ctx, stop := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	w.Cleanup(func() { stop(); wg.Wait() })
	if err := c.WaitUntilFresh(ctx); err != nil {
		w.Fatal(err)
	}
	return c
}

// put creates or changes a ConfigMap; labels are "k=v".
func (w *cacheTest) put(name string, rev int64, labels ...string) int64 {
	w.Helper()
	o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	for _, l := range labels {
		k, v, _ := strings.Cut(l, "=")
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[k] = v
	}
	b, err := w.codec.Store(w.def, o)
	if err != nil {
		w.Fatal(err)
	}
	at, err := w.store.Commit(w.Context(), kv.Write{Key: w.def.Key("ns", name), Value: b, Rev: rev})
	if err != nil {
		w.Fatal(err)
	}
	return at
}

func (w *cacheTest) remove(name string, rev int64) int64 {
	w.Helper()
	at, err := w.store.Commit(w.Context(), kv.Write{Key: w.def.Key("ns", name), Rev: rev})
	if err != nil {
		w.Fatal(err)
	}
	return at
}

// readEvents reads n events and returns them as texts "TYPE name@revision".
func (w *cacheTest) readEvents(x *watch.Watcher, n int) []string {
	w.Helper()
	var got []string
	ctx, stop := context.WithTimeout(w.Context(), time.Minute)
	defer stop()
	for len(got) < n {
		items, err := x.Next(ctx, nil, nil)
		if err != nil {
			w.Fatalf("after %v: %v", got, err)
		}
		for _, it := range items {
			o := it.Event.Object(it.As)
			got = append(got, fmt.Sprintf("%s %s@%s", it.As, o.GetName(), o.GetResourceVersion()))
		}
	}
	return got
}

func (w *cacheTest) expectEqual(got, want []string) {
	w.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func text(eventType, name string, rev int64) string {
	return eventType + " " + name + "@" + strconv.FormatInt(rev, 10)
}

func TestReadsSeeAcknowledgedWrites(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	for i := range 50 {
		name := fmt.Sprintf("a%02d", i)
		at := w.put(name, 0)
		if err := c.WaitUntilFresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		e, found := c.Get(w.def.Key("ns", name))
		if !found || e.Rev != at {
			t.Fatalf("write %s at %d is not seen by a fresh read: %v", name, at, e)
		}
	}
	entries, rev := c.List(w.def.Prefix(), func(o kind.Object) bool { return o.GetName() >= "a40" })
	if len(entries) != 10 || rev < entries[9].Rev || entries[0].Object().GetName() != "a40" {
		t.Errorf("list: %d entries at %d", len(entries), rev)
	}
}

func TestSelectedObjectsAppearAndDisappear(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	red := watch.Selection{Prefix: w.def.Prefix(), Keep: func(o kind.Object) bool { return o.GetLabels()["c"] == "red" }}
	x, state, _, err := c.Watch(t.Context(), red, watch.Start{State: true})
	if err != nil || len(state) != 0 {
		t.Fatal(state, err)
	}
	defer x.Close()
	a := w.put("a", 0, "c=blue")
	b := w.put("a", a, "c=red")
	d := w.put("a", b, "c=red", "x=y")
	e := w.put("a", d, "c=blue")
	f := w.put("a", e, "c=red")
	g := w.remove("a", f)
	w.expectEqual(w.readEvents(x, 5), []string{text("ADDED", "a", b), text("MODIFIED", "a", d), text("DELETED", "a", e), text("ADDED", "a",
		f),
		text("DELETED", "a", g)})
}

// TestSelectionsByChange checks that a watcher does not get the changes that Selection.When refuses, whether it starts
// at the current revision or at a past one.
func TestSelectionsByChange(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	version := func(o kind.Object) string {
		if o == nil {
			return "-"
		}
		return o.GetResourceVersion()
	}
	var mu sync.Mutex
	calls := map[string]bool{}
	sel := watch.Selection{Prefix: w.def.Prefix(), When: func(old, now kind.Object) bool {
		mu.Lock()
		defer mu.Unlock()
		calls[version(old)+" "+version(now)] = true
		return now == nil || now.GetLabels()["c"] == "red"
	}}
	start := c.Rev()
	x, _, _, err := c.Watch(t.Context(), sel, watch.Start{State: true})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	a := w.put("a", 0)
	b := w.put("a", a, "c=red")
	d := w.put("a", b)
	e := w.remove("a", d)
	want := []string{text("MODIFIED", "a", b), text("DELETED", "a", e)}
	w.expectEqual(w.readEvents(x, 2), want)
	mu.Lock()
	for _, change := range []string{fmt.Sprint("- ", a), fmt.Sprint(a, " ", b), fmt.Sprint(b, " ", d), fmt.Sprint(d, " -")} {
		if !calls[change] {
			t.Errorf("When was not called for %s, but for %v", change, calls)
		}
	}
	mu.Unlock()
	late, _, _, err := c.Watch(t.Context(), sel, watch.Start{After: start})
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	w.expectEqual(w.readEvents(late, 2), want)
}

func TestIndexedWatchersSeeOldAndNewValue(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	on := func(node string) *watch.Watcher {
		sel := watch.Selection{Prefix: w.def.Prefix(), Index: node, Keep: func(o kind.Object) bool { return o.GetLabels()["node"] == node }}
		x, _, _, err := c.Watch(t.Context(), sel, watch.Start{State: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(x.Close)
		return x
	}
	m, n := on("m"), on("n")
	a := w.put("p", 0, "node=m")
	b := w.put("p", a, "node=n")
	d := w.remove("p", b)
	w.expectEqual(w.readEvents(m, 2), []string{text("ADDED", "p", a), text("DELETED", "p", b)})
	w.expectEqual(w.readEvents(n, 2), []string{text("ADDED", "p", b), text("DELETED", "p", d)})
}

// TestWatchFromPastRevision checks that a watch from any past revision gets exactly the events after it, in order, even if
// the history of the cache does not reach back that far, as after a restart.
func TestWatchFromPastRevision(t *testing.T) {
	w := newCacheTest(t)
	early := w.cache()
	rnd := rand.New(rand.NewPCG(1, 2))
	revs := map[string]int64{}
	var log []string
	var at []int64
	for range 200 {
		name := string(rune('a' + rnd.IntN(5)))
		previous := revs[name]
		switch {
		case previous == 0:
			revs[name] = w.put(name, 0)
			log = append(log, text("ADDED", name, revs[name]))
		case rnd.IntN(3) == 0:
			deleted := w.remove(name, previous)
			revs[name] = 0
			log, at = append(log, text("DELETED", name, deleted)), append(at, deleted)
			continue
		default:
			revs[name] = w.put(name, previous)
			log = append(log, text("MODIFIED", name, revs[name]))
		}
		at = append(at, revs[name])
	}
	for _, c := range []*watch.Cache{early, w.cache()} { // the second one is loaded after all changes
		if err := c.WaitUntilFresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, from := range []int{0, 1, 57, 150, 198} {
			x, _, _, err := c.Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, watch.Start{After: at[from]})
			if err != nil {
				t.Fatal(err)
			}
			w.expectEqual(w.readEvents(x, len(log)-from-1), log[from+1:])
			x.Close()
		}
	}
}

func TestCompactedRevisionIsTooOld(t *testing.T) {
	w := newCacheTest(t)
	first := w.put("a", 0)
	second := w.put("a", first)
	third := w.put("a", second)
	if err := w.store.Compact(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	c := w.cache()
	_, _, _, err := c.Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, watch.Start{After: first})
	if _, tooOld := errors.AsType[*watch.TooOld](err); !tooOld {
		t.Fatalf("want TooOld, got %v", err)
	}
}

func TestSlowWatcherIsEndedWithoutHarmToOthers(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	all := watch.Selection{Prefix: w.def.Prefix()}
	slow, _, _, err := c.Watch(t.Context(), all, watch.Start{State: true})
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Close()
	fast, _, _, err := c.Watch(t.Context(), all, watch.Start{State: true})
	if err != nil {
		t.Fatal(err)
	}
	defer fast.Close()
	const writes = 9000 // more than a queue holds
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 30 {
			var ws []kv.Write
			for j := range writes / 30 {
				o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("o%d-%d", i, j)}}
				b, err := w.codec.Store(w.def, o)
				if err != nil {
					t.Error(err)
					return
				}
				ws = append(ws, kv.Write{Key: w.def.Key("ns", o.Name), Value: b})
			}
			for len(ws) > 0 { // etcd takes 128 operations a transaction
				n := min(100, len(ws))
				if _, err := w.store.Commit(t.Context(), ws[:n]...); err != nil {
					t.Error(err)
					return
				}
				ws = ws[n:]
			}
		}
	})
	if got := w.readEvents(fast, writes); len(got) != writes {
		t.Errorf("the quick watcher got %d of %d", len(got), writes)
	}
	wg.Wait()
	for {
		items, err := slow.Next(t.Context(), nil, nil)
		if errors.Is(err, watch.ErrSlow) {
			break
		}
		if err != nil || len(items) > 0 {
			t.Fatalf("want the slow watcher ended, got %d items, %v", len(items), err)
		}
	}
}

func TestBookmarkIsNeverAheadOfAnEvent(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	x, _, _, err := c.Watch(t.Context(), watch.Selection{Prefix: w.def.Prefix()}, watch.Start{State: true})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	var last int64
	for range 100 {
		rev := w.put("n"+strconv.FormatInt(last, 10), 0)
		if at, caughtUp := x.DeliveredUpTo(); caughtUp && at >= rev {
			// The event must have been returned before, but was not.
			t.Fatalf("a bookmark at %d before the event at %d", at, rev)
		}
		w.readEvents(x, 1)
		last = rev
	}
	if err := c.WaitUntilFresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if at, caughtUp := x.DeliveredUpTo(); !caughtUp || at < last {
		t.Errorf("caught up at %d (%v), last event at %d", at, caughtUp, last)
	}
}

func TestWaitForRevision(t *testing.T) {
	w := newCacheTest(t)
	c := w.cache()
	// A write with another prefix raises the revision of the store; progress brings the cache to it.
	rev, err := w.store.Commit(t.Context(), kv.Write{Key: "/registry/other/x", Value: []byte("1")})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitFor(t.Context(), rev); err != nil {
		t.Fatalf("a revision of another resource: %v", err)
	}
	if _, tooNew := errors.AsType[*watch.TooNew](c.WaitFor(t.Context(), rev+1000)); !tooNew {
		t.Fatal("waiting for a revision that never comes must fail")
	}
}

// TestAccount checks that what a cache accounts for is what it has: after creations, changes, deletions and loads, and nothing at its end.
func TestAccount(t *testing.T) {
	t.Parallel()
	w := newCacheTest(t)
	var mu sync.Mutex
	bytes, objects := 0, 0
	c := watch.New(watch.Config{
		Prefix: w.def.Prefix(), Source: w.store, Log: slog.New(slog.DiscardHandler),
		Decode: func(p kv.Pair) (kind.Object, error) { return w.codec.Load(w.def, p) },
		Account: func(key string, b, n int) {
			if !strings.HasPrefix(key, w.def.Prefix()+"ns/") {
				t.Errorf("key %q", key)
			}
			mu.Lock()
			defer mu.Unlock()
			bytes, objects = bytes+b, objects+n
		},
	})
	w.put("before", 0)
	ctx, stop := context.WithCancel(w.Context())
	var wg sync.WaitGroup
	wg.Go(func() { c.Run(ctx) })
	check := func(what string) {
		t.Helper()
		if err := c.WaitUntilFresh(ctx); err != nil {
			t.Fatal(err)
		}
		page, err := w.store.List(ctx, kv.Range{Prefix: w.def.Prefix()})
		if err != nil {
			t.Fatal(err)
		}
		stored := 0
		for _, p := range page.Pairs {
			stored += len(p.Value)
		}
		mu.Lock()
		defer mu.Unlock()
		if bytes != stored || objects != len(page.Pairs) {
			t.Errorf("%s: %d bytes of %d objects, but %d of %d are stored", what, bytes, objects, stored, len(page.Pairs))
		}
	}
	check("loaded")
	rev := w.put("a", 0, "k=v")
	check("created")
	rev = w.put("a", rev, "k=v", "long=label")
	check("changed")
	c.Wrote(1 << 40) // at a revision that a restored store does not have any more
	c.Reload()
	check("loaded again")
	if c.Lag() != 0 {
		t.Errorf("loaded again, it is %s behind", c.Lag())
	}
	if _, err := w.store.Commit(ctx, kv.Write{Key: w.def.Key("ns", "a"), Rev: rev}); err != nil {
		t.Fatal(err)
	}
	check("deleted")
	stop()
	wg.Wait()
	if bytes != 0 || objects != 0 {
		t.Errorf("at the end %d bytes of %d objects", bytes, objects)
	}
}
