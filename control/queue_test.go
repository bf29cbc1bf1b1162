package control

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
)

// eventView is a view whose events come from a channel.
type eventView struct {
	events chan client.Event
}

// viewClient is a client whose every view is view.
type viewClient struct {
	client.Client
	view *eventView
}

func (c viewClient) View(context.Context, schema.GroupResource) (client.View, error) {
	return c.view, nil
}

func (f *eventView) Get(string, string) (kind.Object, bool)        { return nil, false }
func (f *eventView) List(string) iter.Seq[kind.Object]             { return func(func(kind.Object) bool) {} }
func (f *eventView) By(client.Index, string) iter.Seq[kind.Object] { return f.List("") }
func (f *eventView) Reach(context.Context, int64) error            { return nil }
func (f *eventView) Unreadable(string) []string                    { return nil }
func (f *eventView) Events(ctx context.Context) iter.Seq[client.Event] {
	return func(yield func(client.Event) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case ev := <-f.events:
				if !yield(ev) {
					return
				}
			}
		}
	}
}

func event(name string) client.Event {
	return client.Event{Object: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}}
}

// start runs a controller with the given Reconcile and returns functions that send it an event and stop it.
func start(t *testing.T, workers int, reconcile func(Key) (time.Duration, error)) (send func(string), stop func()) {
	t.Helper()
	f := &eventView{events: make(chan client.Event)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		err := Run(ctx, slog.New(slog.DiscardHandler), viewClient{view: f}, Controller{
			Name: "test", For: schema.GroupResource{Resource: "nodes"}, Workers: workers,
			Reconcile: func(_ context.Context, _ *Cluster, k Key) (time.Duration, error) { return reconcile(k) },
		}, NewMetrics())
		if err != nil {
			t.Error(err)
		}
	})
	return func(name string) { f.events <- event(name) }, func() { cancel(); wg.Wait() }
}

// TestDeletionInGap checks that a controller handles an object that was deleted while its view missed events.
func TestDeletionInGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &eventView{events: make(chan client.Event)} // it has no object
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var mu sync.Mutex
		got := ""
		wg.Go(func() {
			_ = Run(ctx, slog.New(slog.DiscardHandler), viewClient{view: f}, Controller{
				Name: "test", For: schema.GroupResource{Resource: "nodes"},
				When: func(_, now kind.Object) bool { return now == nil || now.GetName() != "other" },
				Reconcile: func(_ context.Context, _ *Cluster, k Key) (time.Duration, error) {
					mu.Lock()
					defer mu.Unlock()
					got += k.Name + " "
					return 0, nil
				},
			}, NewMetrics())
		})
		deleted := event("b")
		deleted.Deleted, deleted.Old = true, deleted.Object
		gap := client.Event{Gap: true}
		for _, ev := range []client.Event{event("a"), event("other"), event("b"), deleted, gap, event("c"), gap, gap} {
			f.events <- ev
			synctest.Wait()
		}
		stop()
		wg.Wait()
		if got != "a b b a c c " {
			t.Errorf("reconciled %q", got)
		}
	})
}

func TestBackoffMergingAndRequeueAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var at []time.Duration
		send, stop := start(t, 2, func(Key) (time.Duration, error) {
			at = append(at, time.Since(begin))
			switch len(at) {
			case 1, 2, 3:
				return 0, errors.New("not yet")
			case 4:
				time.Sleep(time.Second) // two events arrive meanwhile
				return time.Hour, nil
			}
			return 0, nil
		})
		send("a")
		time.Sleep(500 * time.Millisecond)
		send("a")
		send("a")
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		// Three failures with doubled back-off, the success, one run for both events, and the requeue after an hour.
		want := []time.Duration{0, 5 * time.Millisecond, 15 * time.Millisecond, 35 * time.Millisecond, 1035 * time.Millisecond,
			time.Hour + 1035*time.Millisecond}
		if len(at) != len(want) {
			t.Fatalf("ran at %v, want %v", at, want)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("run %d at %v, want %v", i, at[i], want[i])
			}
		}
		stop()
	})
}

func TestOneWorkerPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		busy, highest, keys := map[Key]bool{}, 0, map[Key]int{}
		send, stop := start(t, 4, func(k Key) (time.Duration, error) {
			mu.Lock()
			if busy[k] {
				t.Errorf("%v is reconciled twice at the same time", k)
			}
			busy[k] = true
			keys[k]++
			highest = max(highest, len(busy))
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			delete(busy, k)
			mu.Unlock()
			return 0, nil
		})
		for range 3 {
			for _, name := range []string{"a", "b", "c"} {
				send(name)
			}
			synctest.Wait() // all three are being reconciled when the next events come
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if highest != 3 {
			t.Errorf("%d keys at a time, want 3", highest)
		}
		if keys[Key{Name: "a"}] != 2 {
			t.Errorf("a ran %d times; repeats while it ran make one more", keys[Key{Name: "a"}])
		}
		stop()
	})
}

func TestPanicIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := 0
		send, stop := start(t, 1, func(Key) (time.Duration, error) {
			if runs++; runs == 1 {
				panic("oh")
			}
			return 0, nil
		})
		send("a")
		time.Sleep(time.Second)
		synctest.Wait()
		if runs != 2 {
			t.Errorf("%d runs, want a retry after the panic", runs)
		}
		stop()
	})
}

func TestRoleFollowsFromDeclaration(t *testing.T) {
	c := Controller{For: schema.GroupResource{Group: "apps", Resource: "deployments"},
		Triggers: []Trigger{{On: schema.GroupResource{Resource: "pods"}}}, Reads: []schema.GroupResource{Any()},
		Writes: []Write{{On: schema.GroupResource{Resource: "pods"}, Do: "update/status"}}}
	var got []string
	for _, r := range c.Role() {
		got = append(got, r.APIGroups[0]+"/"+r.Resources[0])
	}
	if len(got) != 5 || got[0] != "apps/deployments" || got[1] != "*/*" || got[2] != "/pods" || got[3] != "/pods/status" ||
		got[4] != "/events" {
		t.Errorf("role %v", got)
	}
}

func TestQueueMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, q := NewMetrics(), newQueue()
		m.attach("test", q)
		reg := prometheus.NewRegistry()
		reg.MustRegister(m)
		q.add(Key{Name: "a"}, cause{})
		q.add(Key{Name: "b"}, cause{})
		time.Sleep(2 * time.Second)
		k, _, _ := q.take(t.Context())
		time.Sleep(3 * time.Second)
		got := map[string]float64{}
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			x := f.GetMetric()[0]
			got[f.GetName()] = x.GetGauge().GetValue() + x.GetCounter().GetValue() + x.GetHistogram().GetSampleSum()
		}
		want := map[string]float64{"workqueue_adds_total": 2, "workqueue_depth": 1, "workqueue_queue_duration_seconds": 2,
			"workqueue_retries_total":           0,
			"workqueue_unfinished_work_seconds": 3, "workqueue_longest_running_processor_seconds": 3, "workqueue_work_duration_seconds": 0}
		for name, v := range want {
			if got[name] != v {
				t.Errorf("%s is %v, want %v", name, got[name], v)
			}
		}
		q.done(k, 0, errors.New("no"), false)
		q.stop()
	})
}
