package httpapi

import (
	"testing"
	"testing/synctest"
	"time"

	"proa.dev/kv"
)

// TestLaggingViewRepeatsNoEvent checks that a reader of a view that lags so far that its watch is ended still gets every event
// once and in order.
func TestLaggingViewRepeatsNoEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.createConfigMaps(1, 10)
		def := r.State.Def(configMapsResource())
		view, err := r.Client(r.who).View(t.Context(), configMapsResource())
		if err != nil {
			t.Fatal(err)
		}
		key := def.Key("ns", "m0000")
		pair, _, err := r.State.Store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		rev := pair.Rev
		write := func(times int) {
			for range times {
				if rev, err = r.State.Store.Commit(t.Context(), kv.Write{Key: key, Value: pair.Value, Rev: rev}); err != nil {
					t.Fatal(err)
				}
			}
			synctest.Wait()
		}
		const lag = 9000 // more than the queue of a watcher holds
		last, events := int64(0), 0
		for ev := range view.Events(t.Context()) {
			if ev.Gap || ev.Rev <= last {
				t.Fatalf("after the event at %d comes one at %d (gap: %v)", last, ev.Rev, ev.Gap)
			}
			last = ev.Rev
			switch events++; events {
			case 1:
				write(1)
			case 2:
				write(lag)
			}
			if events > 2 && last == rev {
				break
			}
		}
		if events != 1+1+lag {
			t.Errorf("%d events, want %d", events, 1+1+lag)
		}
	})
}

// TestViewEndsWithServer checks that when the server stops, the events of a view end without a gap.
func TestViewEndsWithServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.createConfigMaps(1, 10)
		view, err := r.Client(r.who).View(t.Context(), configMapsResource())
		if err != nil {
			t.Fatal(err)
		}
		events := 0
		for ev := range view.Events(t.Context()) {
			if events++; ev.Gap {
				t.Error("a gap")
			}
			r.State.Close()
		}
		if events != 1 {
			t.Errorf("%d events, want one", events)
		}
	})
}

// TestEventsStartAtCall checks that an object that is deleted after Events was called, but before its events are read, is
// reported as deleted. Otherwise a controller that reads one view while it starts to follow another would miss the deletion.
func TestEventsStartAtCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		r.createConfigMaps(1, 1)
		def := r.State.Def(configMapsResource())
		view, err := r.Client(r.who).View(t.Context(), configMapsResource())
		if err != nil {
			t.Fatal(err)
		}
		events := view.Events(t.Context())
		key := def.Key("ns", "m0000")
		pair, _, err := r.State.Store.Get(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.State.Store.Commit(t.Context(), kv.Write{Key: key, Rev: pair.Rev}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, found := view.Get("ns", "m0000"); found {
			t.Fatal("the view still has the object")
		}
		present, deleted := 0, 0
		for ev := range events {
			if ev.Deleted {
				deleted++
				break
			}
			present++
		}
		if present != 1 || deleted != 1 {
			t.Errorf("%d present objects and %d deletions were yielded, want one of each", present, deleted)
		}
	})
}

// TestEventsThatAViewGetsTogetherHaveOneTime checks that the clock is read once for the events of a batch, and when the view gets them: a
// reader that takes long for each does not count as a slow delivery.
func TestEventsThatAViewGetsTogetherHaveOneTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		view, err := r.Client(r.who).View(t.Context(), configMapsResource())
		if err != nil {
			t.Fatal(err)
		}
		events := view.Events(t.Context())
		r.createConfigMaps(3, 1)
		synctest.Wait()
		time.Sleep(time.Second)
		began, n := time.Now(), 0
		for ev := range events {
			if !ev.At.Equal(began) {
				t.Errorf("event %d came at %v, want %v", n, ev.At, began)
			}
			if n++; n == 3 {
				break
			}
			time.Sleep(time.Second)
		}
	})
}
