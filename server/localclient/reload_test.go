package localclient

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds"
	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
	"proa.dev/kv"
	memorystore "proa.dev/store/memory"
	"proa.dev/watch"
)

// listHook is a store that calls a function before the next list.
type listHook struct {
	*memorystore.Store
	before func()
}

func (s *listHook) List(ctx context.Context, r kv.Range) (kv.Page, error) {
	if f := s.before; f != nil {
		s.before = nil
		f()
	}
	return s.Store.List(ctx, r)
}

// reloadTest is a view of ConfigMaps of which "locked" cannot be decoded until it is unlocked.
type reloadTest struct {
	*testing.T
	store *listHook
	cache *watch.Cache
	view  *view
	def   *kind.Def
	codec *codec.Codec
	open  atomic.Bool // whether locked can be decoded

	mu     sync.Mutex // guards events
	events []string
}

// runReloadTest runs a test in virtual time.
func runReloadTest(t *testing.T, test func(*reloadTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		scheme, err := kinds.Scheme()
		if err != nil {
			t.Fatal(err)
		}
		r := &reloadTest{T: t, def: core.ConfigMaps(), codec: codec.New(scheme),
			store: &listHook{Store: memorystore.New(memorystore.Config{})}}
		r.cache = watch.New(watch.Config{Prefix: r.def.Prefix(), Source: r.store, Log: slog.New(slog.DiscardHandler),
			Decode: func(p kv.Pair) (kind.Object, error) {
				if strings.HasSuffix(p.Key, "/locked") && !r.open.Load() {
					return nil, kv.NewUnreadable(p, errors.New("no key"))
				}
				return r.codec.Load(r.def, p)
			}})
		r.put("locked", 0)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { r.cache.Run(ctx) })
		synctest.Wait()
		r.view = &view{def: r.def, cache: r.cache, sel: watch.Selection{Prefix: r.def.Prefix()}, show: (*watch.Entry).Object}
		test(r)
		stop()
		wg.Wait()
		_ = r.store.Close()
	})
}

func (r *reloadTest) put(name string, rev int64) int64 {
	r.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	o.SetGroupVersionKind(r.def.GroupVersionKind)
	value, err := r.codec.Store(r.def, o)
	if err != nil {
		r.Fatal(err)
	}
	rev, err = r.store.Commit(r.Context(), kv.Write{Key: r.def.Key("ns", name), Value: value, Rev: rev})
	if err != nil {
		r.Fatal(err)
	}
	return rev
}

// follow collects the events of the view until the test ends. It calls each for every event before it asks for the next one.
func (r *reloadTest) follow(each func()) (stop func()) {
	ctx, cancel := context.WithCancel(r.Context())
	var wg sync.WaitGroup
	events := r.view.Events(ctx)
	wg.Go(func() {
		for ev := range events {
			r.mu.Lock()
			r.events = append(r.events, eventText(ev))
			r.mu.Unlock()
			each()
		}
	})
	synctest.Wait()
	return func() { cancel(); wg.Wait() }
}

func eventText(ev client.Event) string {
	switch {
	case ev.Gap:
		return "gap"
	case ev.Deleted:
		return "deleted " + ev.Object.GetName()
	}
	return ev.Object.GetName()
}

// unlock makes the locked object decodable, and the cache decode it: by loading everything again, or only what it could not decode.
func (r *reloadTest) unlock(how string) {
	r.Helper()
	r.open.Store(true)
	if how == "reread" {
		r.cache.Reread()
	} else if err := r.cache.Retry(r.Context(), r.def.Prefix()); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

// TestViewTellsWhatBecomesReadable checks that a view yields an object that can be decoded at last: nobody writes it, and a controller
// would not see it before somebody does.
func TestViewTellsWhatBecomesReadable(t *testing.T) {
	for _, how := range []string{"reread", "retry"} {
		t.Run(how, func(t *testing.T) {
			runReloadTest(t, func(r *reloadTest) {
				stop := r.follow(func() {})
				if _, err := r.store.Commit(t.Context(), kv.Write{Key: "/registry/other", Value: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				r.unlock(how)
				if _, found := r.view.Get("ns", "locked"); !found {
					t.Fatal("the view does not have it")
				}
				stop()
				if len(r.events) == 0 {
					t.Error("the view has it, and nobody was told")
				}
			})
		})
	}
}

// TestViewTellsOfDeletionDuringReload checks that a view yields the deletion of an object that happens while the cache is loaded again.
func TestViewTellsOfDeletionDuringReload(t *testing.T) {
	runReloadTest(t, func(r *reloadTest) {
		rev := r.put("a", 0)
		r.put("b", 0)
		stop := r.follow(func() {})
		r.store.before = func() {
			if _, err := r.store.Commit(r.Context(), kv.Write{Key: r.def.Key("ns", "a"), Rev: rev}); err != nil {
				r.Error(err)
			}
		}
		r.unlock("reread")
		stop()
		// After what the watch has missed come the present objects.
		if got := strings.Join(r.events, ", "); got != "a, b, deleted a, b, locked" {
			r.Errorf("events: %s", got)
		}
	})
}

// TestSlowViewTellsWhatBecomesReadable checks that a view yields an object that can be decoded at last, also if its watch had ended
// before, because the events were not read in time.
func TestSlowViewTellsWhatBecomesReadable(t *testing.T) {
	for _, how := range []string{"reread", "retry"} {
		t.Run(how, func(t *testing.T) {
			runReloadTest(t, func(r *reloadTest) {
				rev := r.put("a", 0)
				wait, first := make(chan struct{}), true
				stop := r.follow(func() {
					if first {
						first = false
						<-wait
					}
				})
				for range 9000 { // more than are queued
					rev = r.put("a", rev)
				}
				synctest.Wait()
				r.unlock(how)
				close(wait)
				synctest.Wait()
				stop()
				told := map[string]int{}
				for _, text := range r.events {
					told[text]++
				}
				if told["locked"] != 1 || told["gap"] != 0 || told["a"] < 9001 {
					r.Errorf("events: %v", told)
				}
			})
		})
	}
}
