package control

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
)

// boundsClient is a client whose view shows any node, and which keeps the Events that are created.
type boundsClient struct {
	client.Client
	eventView
	mu     sync.Mutex
	events []string
	hung   atomic.Bool // updates are not answered
}

func (c *boundsClient) View(context.Context, schema.GroupResource) (client.View, error) {
	return c, nil
}

func (c *boundsClient) Get(_, name string) (kind.Object, bool) { return event(name).Object, true }

func (c *boundsClient) Create(_ context.Context, on schema.GroupResource, o kind.Object) (kind.Object, error) {
	if ev, ok := o.(*corev1.Event); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.events = append(c.events, ev.Reason+" "+ev.InvolvedObject.Name+": "+ev.Message)
	}
	return o, nil
}

func (c *boundsClient) Update(ctx context.Context, _ schema.GroupResource, o kind.Object, _ string) (kind.Object, error) {
	if c.hung.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return o, nil
}

// bothClient is a boundsClient as a client, whose Get is another than that of a view.
type bothClient struct {
	client.Client
	*boundsClient
}

func (c bothClient) Get(context.Context, schema.GroupResource, string, string, string) (kind.Object, error) {
	return nil, errors.New("not used")
}

func (c bothClient) View(ctx context.Context, on schema.GroupResource) (client.View, error) {
	return c.boundsClient.View(ctx, on)
}

func (c bothClient) Create(ctx context.Context, on schema.GroupResource, o kind.Object) (kind.Object, error) {
	return c.boundsClient.Create(ctx, on, o)
}

func (c bothClient) Update(ctx context.Context, on schema.GroupResource, o kind.Object, sub string) (kind.Object, error) {
	return c.boundsClient.Update(ctx, on, o, sub)
}

// runBounded runs a controller with two workers, and counts the reconciliations of each key.
func runBounded(t *testing.T, reconcile func(context.Context, *Cluster, Key) error) (c *boundsClient, m *Metrics,
	runs func() map[string]int, stop func()) {
	t.Helper()
	c, m = &boundsClient{eventView: eventView{events: make(chan client.Event)}}, NewMetrics()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var mu sync.Mutex
	counts := map[string]int{}
	wg.Go(func() {
		_ = Run(ctx, slog.New(slog.DiscardHandler), bothClient{boundsClient: c}, Controller{
			Name: "test", For: gr.Nodes, Workers: 2, Writes: []Write{{On: gr.Nodes, Do: "update"}},
			Reconcile: func(ctx context.Context, cl *Cluster, k Key) (time.Duration, error) {
				mu.Lock()
				counts[k.Name]++
				mu.Unlock()
				return 0, reconcile(ctx, cl, k)
			},
		}, m)
	})
	return c, m, func() map[string]int {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(counts)
	}, func() { cancel(); wg.Wait() }
}

// TestSlowKeysAreSetAside has more keys that never end by themselves than there are workers: another key is reconciled meanwhile, and
// the slow ones are set aside with an Event, retried at long intervals, and sooner if their spec changes.
func TestSlowKeysAreSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, runs, stop := runBounded(t, func(ctx context.Context, _ *Cluster, k Key) error {
			if strings.HasPrefix(k.Name, "slow") {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		for _, name := range []string{"slow-1", "slow-2", "slow-3", "other"} {
			c.eventView.events <- event(name)
		}
		time.Sleep(3 * slowAfter)
		if runs()["other"] != 1 {
			t.Error("slow keys hold all workers")
		}
		change := func(generation int64) {
			old, now := event("slow-1"), event("slow-1")
			now.Object.SetGeneration(generation)
			now.Old = old.Object
			c.eventView.events <- now
			synctest.Wait()
		}
		time.Sleep(setAsideAfter*maxReconcile + time.Minute)
		if got := runs()["slow-1"]; got != setAsideAfter {
			t.Errorf("%d attempts before it is set aside, want %d", got, setAsideAfter)
		}
		for range 50 {
			change(0)
			time.Sleep(time.Second)
		}
		if got := runs()["slow-1"]; got != setAsideAfter {
			t.Errorf("set aside, it was reconciled %d times more because something has changed", got-setAsideAfter)
		}
		failing := m.Failing(0)
		if len(failing) != 3 || !strings.Contains(failing[0].Err.Error(), "set aside until") || !errors.Is(failing[0].Err, errTooSlow) {
			t.Errorf("failing are %v", failing)
		}
		c.mu.Lock()
		if len(c.events) != 3 || !strings.Contains(c.events[0], "SetAside slow-") ||
			!strings.Contains(c.events[0], "did not end within 2m0s") {
			t.Errorf("Events %q", c.events)
		}
		c.mu.Unlock()
		change(7)
		time.Sleep(retryChanged)
		synctest.Wait()
		if got := runs()["slow-1"]; got != setAsideAfter+1 {
			t.Errorf("%d attempts after a change of the spec, want %d", got, setAsideAfter+1)
		}
		time.Sleep(setAsideFor + maxReconcile)
		if got := runs(); got["slow-2"] != setAsideAfter+1 {
			t.Errorf("after a long time %v attempts", got)
		}
		stop()
	})
}

// TestPanickingKeyIsSetAside has a key whose reconciliation always panics.
func TestPanickingKeyIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _, runs, stop := runBounded(t, func(context.Context, *Cluster, Key) error { panic("oh") })
		c.eventView.events <- event("a")
		time.Sleep(10 * time.Minute)
		before := runs()["a"]
		changed := event("a")
		changed.Old = changed.Object
		for range 100 {
			c.eventView.events <- changed
			synctest.Wait()
		}
		if after := runs()["a"]; before > 30 || after != before {
			t.Errorf("%d attempts, %d after changes", before, after)
		}
		stop()
	})
}

// TestWritesOfOneReconciliation has a key that writes without end: it is reconciled again and again, and others in between.
func TestWritesOfOneReconciliation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, runs, stop := runBounded(t, func(ctx context.Context, cl *Cluster, k Key) error {
			if k.Name == "other" {
				return nil
			}
			for n := 0; ; n++ {
				if n > 2*maxWrites {
					t.Error("the writes of a reconciliation are not bounded")
					return nil
				}
				if _, err := cl.Update(ctx, gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.Name}}, ""); err != nil {
					return err
				}
			}
		})
		c.eventView.events <- event("many")
		c.eventView.events <- event("other")
		time.Sleep(5 * time.Millisecond)
		if got := runs(); got["other"] != 1 || got["many"] < 2 || len(m.Failing(0)) > 0 {
			t.Errorf("reconciled %v, failing %v", got, m.Failing(0))
		}
		stop()
	})
}

// TestEndlessReconciliationIsReported has a reconciliation that ignores its context.
func TestEndlessReconciliationIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		c, m, _, stop := runBounded(t, func(context.Context, *Cluster, Key) error { <-end; return nil })
		c.eventView.events <- event("a")
		time.Sleep(maxReconcile + endsWithin + time.Second)
		if f := m.Failing(0); len(f) != 1 || !errors.Is(f[0].Err, errNotEnding) {
			t.Errorf("failing are %v", f)
		}
		close(end)
		stop()
	})
}

// TestSlowServerSetsNothingAside has a server that answers no write for a long time: the key is tried again soon after it answers.
func TestSlowServerSetsNothingAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, m, runs, stop := runBounded(t, func(ctx context.Context, cl *Cluster, k Key) error {
			_, err := cl.Update(ctx, gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: k.Name}}, "")
			return err
		})
		c.hung.Store(true)
		c.eventView.events <- event("a")
		time.Sleep((2*setAsideAfter + 1) * maxReconcile)
		if f := m.Failing(0); len(f) != 1 || strings.Contains(f[0].Err.Error(), "set aside") {
			t.Errorf("failing are %v", f)
		}
		c.hung.Store(false)
		time.Sleep(maxReconcile + 10*time.Second)
		if f := m.Failing(0); len(f) != 0 {
			t.Errorf("%d attempts, failing are %v", runs()["a"], f)
		}
		stop()
	})
}
