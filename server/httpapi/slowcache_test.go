package httpapi

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kv"
	"proa.dev/server"
	"proa.dev/server/state"
)

// slowStore is a store whose watches deliver a change in each pace of time, ten times as long as a write takes, and nothing while
// they are stuck.
type slowStore struct {
	state.Store
	pace  time.Duration
	stuck atomic.Bool
}

func (s *slowStore) Commit(ctx context.Context, writes ...kv.Write) (int64, error) {
	time.Sleep(s.pace / 10)
	return s.Store.Commit(ctx, writes...)
}

func (s *slowStore) Watch(ctx context.Context, prefix string, after int64) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		for b, err := range s.Store.Watch(ctx, prefix, after) {
			for i, ch := range b.Changes {
				for time.Sleep(s.pace); s.stuck.Load() && ctx.Err() == nil; {
					time.Sleep(time.Second)
				}
				if !yield(kv.Batch{Changes: b.Changes[i : i+1], Rev: ch.Rev}, nil) {
					return
				}
			}
			if !yield(kv.Batch{Rev: b.Rev}, err) {
				return
			}
		}
	}
}

// list returns the names of the ConfigMaps, by a list or by a watch that begins with them.
func (r *rig) list(verb string, limit int64) (names map[string]bool, err error) {
	res, err := r.request(verb, "configmaps", "ns", "", func(q *server.Request) { q.Options.List.Limit = limit })
	if err != nil {
		return nil, err
	}
	names = map[string]bool{}
	if res.Watch != nil {
		defer res.Watch.Ended()
		defer res.Watch.Watcher.Close()
		for _, e := range res.Watch.State {
			names[e.Object().GetName()] = true
		}
		return names, nil
	}
	for _, e := range res.List.Items {
		names[e.Object().GetName()] = true
	}
	return names, nil
}

// TestOwnWritesAreReadWhileTheCacheIsSlow checks that clients read what they have written, by get, list and watch, also when the cache
// cannot follow them, and that the cache is never far behind then.
func TestOwnWritesAreReadWhileTheCacheIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		slow := &slowStore{Store: r.State.Store, pace: 500 * time.Microsecond}
		r.State.Store = slow
		r.State.Cache(r.State.Def(configMapsResource()))
		const writers, writes = 32, 600
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for j := range writes {
					name := fmt.Sprintf("m-%d-%d", i, j)
					r.create(configMapsResource(), configMap(name))
					if lag := r.State.CacheLags()["configmaps"]; lag > 2.5 {
						t.Errorf("the cache is %.2f s behind", lag)
					}
					if j%300 == 299 {
						r.expectConfigMap(name)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestStoreAnswersWhileTheCacheIsStuck checks that writes go on and are read when the watch of the store delivers nothing.
func TestStoreAnswersWhileTheCacheIsStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newMemoryRig(t, 100)
		slow := &slowStore{Store: r.State.Store, pace: time.Millisecond}
		r.State.Store = slow
		r.create(configMapsResource(), configMap("first"))
		r.expectConfigMap("first")
		slow.stuck.Store(true)
		for i := range 100 {
			name := fmt.Sprintf("m%d", i)
			out := r.create(configMapsResource(), configMap(name))
			if i%10 != 0 {
				continue
			}
			for _, version := range []string{"", out.GetResourceVersion()} {
				if _, err := r.request("get", "configmaps", "ns", name, func(q *server.Request) {
					q.Options.List.ResourceVersion = version
				}); err != nil {
					t.Errorf("get %s at %q: %v", name, version, err)
				}
			}
			for _, limit := range []int64{0, 1000} {
				if names, err := r.list("list", limit); err != nil || len(names) != i+2 || !names[name] {
					t.Errorf("list with limit %d after %s: %d names, %v", limit, name, len(names), err)
				}
			}
			if _, err := r.request("update", "configmaps", "ns", name, func(q *server.Request) {
				m := configMap(name)
				m.ResourceVersion, m.Data["a"] = out.GetResourceVersion(), "c"
				q.Object = m
			}); err != nil {
				t.Errorf("update %s: %v", name, err)
			}
		}
		if lag := r.State.CacheLags()["configmaps"]; lag < 2 {
			t.Errorf("the lag of the cache is %.2f s", lag)
		}
		_, err := r.request("get", "configmaps", "ns", "first", func(q *server.Request) { q.Options.List.ResourceVersion = "1000000" })
		if reason := metav1.StatusReasonTimeout; err == nil || apierrors.ReasonForError(err) != reason {
			t.Errorf("a get at a revision that does not exist: %v", err)
		}
		slow.stuck.Store(false)
	})
}

// expectConfigMap reads a ConfigMap in every way.
func (r *rig) expectConfigMap(name string) {
	r.Helper()
	if _, err := r.request("get", "configmaps", "ns", name, nil); err != nil {
		r.Errorf("get %s: %v", name, err)
	}
	for _, verb := range []string{"list", "watch"} {
		if names, err := r.list(verb, 0); err != nil || !names[name] {
			r.Errorf("%s after the write of %s: %v, found: %t", verb, name, err, names[name])
		}
	}
}
