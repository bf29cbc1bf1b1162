package watch_test

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
	"proa.dev/watch"
)

// encodedCacheTest is a test whose cache keeps ConfigMaps encoded, with outlines without data, and counts how often it
// decodes an object.
type encodedCacheTest struct {
	*cacheTest
	decoded atomic.Int64
}

func (w *encodedCacheTest) cache() *watch.Cache {
	c := watch.New(watch.Config{
		Prefix: w.def.Prefix(), Source: w.store, Log: slog.New(slog.DiscardHandler),
		Decode: func(p kv.Pair) (kind.Object, error) {
			w.decoded.Add(1)
			return w.codec.Load(w.def, p)
		},
		Outline: func(o kind.Object) kind.Object {
			out := *o.(*corev1.ConfigMap)
			out.Data = nil
			return &out
		},
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

func (w *encodedCacheTest) write(name, data string, rev int64) int64 {
	w.Helper()
	o := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"is": data}},
		Data:       map[string]string{"data": data},
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

// collectGarbage runs the garbage collector, so that weak pointers are cleared.
func collectGarbage() {
	runtime.GC()
	runtime.GC()
}

// TestCacheKeepsObjectsEncoded checks that a cache with outlines keeps no decoded objects. Lists, selections and indexes use
// outlines and decode nothing; reading an object returns it as it was stored, with its revision.
func TestCacheKeepsObjectsEncoded(t *testing.T) {
	w := &encodedCacheTest{cacheTest: newCacheTest(t)}
	at := w.write("a", "one", 0)
	w.write("b", "two", 0)
	c := w.cache()
	collectGarbage()
	loaded := w.decoded.Load()

	list, _ := c.List(w.def.Prefix(), func(o kind.Object) bool { return o.GetLabels()["is"] == "one" })
	found := c.By("is", func(o kind.Object) []string { return []string{o.GetLabels()["is"]} }, "one")
	if len(list) != 1 || len(found) != 1 || list[0] != found[0] {
		t.Fatalf("the list has %d entries, the index %d", len(list), len(found))
	}
	e := list[0]
	if o := e.Outline().(*corev1.ConfigMap); o.Name != "a" || o.Data != nil {
		t.Errorf("the outline is %v", o)
	}
	if n := w.decoded.Load(); n != loaded {
		t.Errorf("a list and an index decoded %d objects", n-loaded)
	}
	if o := e.Object().(*corev1.ConfigMap); o.Data["data"] != "one" || o.ResourceVersion != strconv.FormatInt(at, 10) ||
		o.Labels["is"] != "one" {
		t.Errorf("the object is %v", o)
	}
	if n := w.decoded.Load(); n != loaded+1 {
		t.Errorf("reading an object decoded %d of them: the cache has held it decoded", n-loaded)
	}
}

// TestEventsOfEncodedObjects checks that watchers get whole objects, including the last state of a deleted object or one
// that leaves a selection, and past states. Selections see outlines.
func TestEventsOfEncodedObjects(t *testing.T) {
	w := &encodedCacheTest{cacheTest: newCacheTest(t)}
	c := w.cache()
	before := c.Rev()
	sel := watch.Selection{
		Prefix: w.def.Prefix(),
		Keep:   func(o kind.Object) bool { return o.GetLabels()["is"] != "out" && o.(*corev1.ConfigMap).Data == nil },
		When: func(old, now kind.Object) bool {
			return (old == nil || old.(*corev1.ConfigMap).Data == nil) && (now == nil || now.(*corev1.ConfigMap).Data == nil)
		},
	}
	x, _, _, err := c.Watch(t.Context(), sel, watch.Start{After: before})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	one := w.write("a", "one", 0)
	two := w.write("a", "two", one)
	out := w.write("a", "out", two)
	back := w.write("a", "back", out)
	end := w.remove("a", back)
	want := []string{text("ADDED", "a", one) + " one", text("MODIFIED", "a", two) + " two", text("DELETED", "a", out) + " two",
		text("ADDED", "a", back) + " back", text("DELETED", "a", end) + " back"}
	w.expectEqual(w.readEventData(x, len(want)), want)

	collectGarbage()
	past, _, _, err := c.Watch(t.Context(), sel, watch.Start{After: before})
	if err != nil {
		t.Fatal(err)
	}
	defer past.Close()
	w.expectEqual(w.readEventData(past, len(want)), want)

	after := w.cache() // it has not seen the changes, so they are read from the store
	stored, _, _, err := after.Watch(t.Context(), sel, watch.Start{After: before})
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	w.expectEqual(w.readEventData(stored, len(want)), want)
}

// readEventData returns the next events with the data of their objects.
func (w *encodedCacheTest) readEventData(x *watch.Watcher, n int) (got []string) {
	w.Helper()
	for len(got) < n {
		items, err := x.Next(w.Context(), nil, nil)
		if err != nil {
			w.Fatal(err)
		}
		for _, it := range items {
			o := it.Event.Object(it.As).(*corev1.ConfigMap)
			got = append(got, it.As.String()+" "+o.Name+"@"+o.ResourceVersion+" "+o.Data["data"])
		}
	}
	return got
}

// TestOfferIsNotKept checks that an offered object is shared with the watchers of the change, and not kept longer.
func TestOfferIsNotKept(t *testing.T) {
	w := &encodedCacheTest{cacheTest: newCacheTest(t)}
	c := w.cache()
	o := &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"},
		Data:       map[string]string{"data": "offered"}}
	value, err := w.codec.Store(w.def, o)
	if err != nil {
		t.Fatal(err)
	}
	offer := watch.NewOffer(c, w.def.Key("ns", "a"), value, o)
	at, err := w.store.Commit(t.Context(), kv.Write{Key: w.def.Key("ns", "a"), Value: value})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitFor(t.Context(), at); err != nil {
		t.Fatal(err)
	}
	if offered, ok := offer.At(at); !ok || offered != kind.Object(o) {
		t.Errorf("the writer gets %v", offered)
	}
	e, _ := c.Get(w.def.Key("ns", "a"))
	collectGarbage()
	if again, ok := e.Object().(*corev1.ConfigMap); !ok || again == o || again.Data["data"] != "offered" {
		t.Errorf("after a collection the cache has %v, the very object of the writer: %v", again, again == o)
	}
	if n := w.decoded.Load(); n != 1 {
		t.Errorf("decoded %d times, want once, after the collection", n)
	}
}
