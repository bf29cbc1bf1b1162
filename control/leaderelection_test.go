package control_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// cut is a client whose connection to the server can be cut: then every request fails, and nothing it writes arrives.
type cut struct {
	client.Client
	disconnected atomic.Bool
}

var errNoRoute = errors.New("no route")

func (c *cut) Get(ctx context.Context, on schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	if c.disconnected.Load() {
		return nil, errNoRoute
	}
	return c.Client.Get(ctx, on, namespace, name, sub)
}

func (c *cut) Create(ctx context.Context, on schema.GroupResource, obj kind.Object) (kind.Object, error) {
	if c.disconnected.Load() {
		return nil, errNoRoute
	}
	return c.Client.Create(ctx, on, obj)
}

func (c *cut) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	if c.disconnected.Load() {
		return nil, errNoRoute
	}
	return c.Client.Update(ctx, on, obj, sub)
}

// contest runs several contenders and records who leads since when. The test fails when two lead at the same time.
type contest struct {
	*testing.T
	mu    sync.Mutex
	leads string
	since time.Time
	stop  map[string]context.CancelFunc
	cuts  map[string]*cut
	runs  map[string]*control.Leadership
	wg    sync.WaitGroup
}

func newContest(t *testing.T) *contest {
	return &contest{T: t, stop: map[string]context.CancelFunc{}, cuts: map[string]*cut{}, runs: map[string]*control.Leadership{}}
}

// end stops all contenders and waits for them to return.
func (c *contest) end() {
	for _, stop := range c.stop {
		stop()
	}
	c.wg.Wait()
}

func (c *contest) enter(cluster *proatest.Cluster, name string) {
	ctx, stop := context.WithCancel(c.Context())
	c.stop[name], c.cuts[name], c.runs[name] = stop, &cut{Client: cluster.Client}, &control.Leadership{Lease: "test", Identity: name}
	c.wg.Go(func() {
		c.runs[name].Run(ctx, slog.New(slog.DiscardHandler), c.cuts[name], func(ctx context.Context) {
			c.mu.Lock()
			if c.leads != "" {
				c.Errorf("%s leads while %s does", name, c.leads)
			}
			c.leads, c.since = name, time.Now()
			c.mu.Unlock()
			<-ctx.Done()
			c.mu.Lock()
			c.leads = ""
			c.mu.Unlock()
		})
	})
}

func (c *contest) leader() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leads
}

func TestLeadership(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		c := newContest(t)
		c.enter(cluster, "a")
		if got := c.leader(); got != "a" {
			t.Fatalf("%q leads, want a, the only contender", got)
		}
		c.enter(cluster, "b")
		time.Sleep(10 * time.Minute)
		if got := c.leader(); got != "a" {
			t.Fatalf("%q leads, want a: it renews", got)
		}

		// a is cut off: it stops by itself, and b takes over in two seconds.
		at := time.Now()
		c.cuts["a"].disconnected.Store(true)
		time.Sleep(2100 * time.Millisecond)
		if got := c.leader(); got != "b" || c.since.Sub(at) > 2*time.Second {
			t.Fatalf("%q leads since %v, want b in at most two seconds", got, c.since.Sub(at))
		}
		c.cuts["a"].disconnected.Store(false)
		time.Sleep(10 * time.Minute)
		if got := c.leader(); got != "b" {
			t.Fatalf("%q leads, want b", got)
		}

		// b is stopped and releases the Lease: a leads at once.
		at = time.Now()
		c.stop["b"]()
		time.Sleep(10 * time.Millisecond)
		if got := c.leader(); got != "a" || c.since.Sub(at) > 5*time.Millisecond {
			t.Fatalf("%q leads after %v, want a at once", got, c.since.Sub(at))
		}
		c.end()
		cluster.Stop()
	})
}

// TestLeadershipAfterOutage takes the store away from all contenders for a while. The leader stops leading, which Check
// reports, and one of them leads again soon after the outage, although nobody else changes the Lease.
func TestLeadershipAfterOutage(t *testing.T) {
	for _, away := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, time.Minute, time.Hour} {
		for _, names := range [][]string{{"a"}, {"a", "b"}} {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
				c := newContest(t)
				for _, name := range names {
					c.enter(cluster, name)
					time.Sleep(time.Second)
				}
				for _, cut := range c.cuts {
					cut.disconnected.Store(true)
				}
				time.Sleep(away)
				short, long := away <= time.Second, away >= 10*time.Second
				if got := c.leader(); got != "" && long {
					t.Errorf("%q leads without a store for %v", got, away)
				}
				for name, l := range c.runs {
					if err := l.Check(); short && err != nil || long && err == nil {
						t.Errorf("without a store for %v the check of %s says %v", away, name, err)
					}
				}
				for _, cut := range c.cuts {
					cut.disconnected.Store(false)
				}
				time.Sleep(time.Second)
				if got := c.leader(); got == "" {
					t.Errorf("nobody leads a second after the store has come back, with %v, after %v", names, away)
				}
				for name, l := range c.runs {
					if err := l.Check(); err != nil {
						t.Errorf("after %v the check of %s says %v", away, name, err)
					}
				}
				c.end()
				cluster.Stop()
			})
		}
	}
}

// TestLeadershipEndsWithoutStore checks that a contender whose requests all fail can still be stopped.
func TestLeadershipEndsWithoutStore(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		c := newContest(t)
		c.enter(cluster, "a")
		c.cuts["a"].disconnected.Store(true)
		time.Sleep(time.Minute)
		at := time.Now()
		c.end()
		if took := time.Since(at); took > 0 {
			t.Errorf("the contender ended after %v", took)
		}
		cluster.Stop()
	})
}

// TestLeadershipHonoursTheHolder has a holder with a lease duration of 15 seconds, as upstream's controller manager has,
// which renews every ten: nobody takes over while it renews, nor before 15 seconds have passed since its last renewal.
func TestLeadershipHonoursTheHolder(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		c := newContest(t)
		now := metav1.NewMicroTime(time.Now())
		o, err := cluster.Client.Create(t.Context(), gr.Leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "test"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("upstream"), LeaseDurationSeconds: new(int32(15)), AcquireTime: &now,
				RenewTime: &now},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.enter(cluster, "a")
		c.enter(cluster, "b")
		var last time.Time
		for range 20 {
			time.Sleep(10 * time.Second)
			if got := c.leader(); got != "" {
				t.Fatalf("%s took the Lease from a holder that renews it", got)
			}
			next := o.DeepCopyObject().(*coordinationv1.Lease)
			next.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
			if o, err = cluster.Client.Update(t.Context(), gr.Leases, next, ""); err != nil {
				t.Fatal(err)
			}
			last = time.Now()
		}
		time.Sleep(15*time.Second - time.Millisecond)
		if got := c.leader(); got != "" {
			t.Fatalf("%s took the Lease before it had run out", got)
		}
		for name, l := range c.runs {
			if err := l.Check(); err != nil {
				t.Errorf("the check of %s says %v while somebody else leads", name, err)
			}
		}
		time.Sleep(10 * time.Millisecond)
		if got := c.leader(); got == "" || c.since.Sub(last) < 15*time.Second {
			t.Fatalf("%q leads %v after the last renewal, want 15s", got, c.since.Sub(last))
		}
		o, err = cluster.Client.Get(t.Context(), gr.Leases, "kube-system", "test", "")
		if err != nil {
			t.Fatal(err)
		}
		if says := o.(*coordinationv1.Lease).Spec.LeaseDurationSeconds; says == nil || *says != 2 {
			t.Errorf("the Lease says %v seconds, want the two after which others take over", says)
		}
		c.end()
		cluster.Stop()
	})
}
