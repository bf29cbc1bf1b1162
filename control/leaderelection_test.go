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

// disconnectableClient is a client whose connection to the server can be cut: then every request fails, and nothing it writes
// arrives.
type disconnectableClient struct {
	client.Client
	disconnected atomic.Bool
}

var errNoRoute = errors.New("no route")

func (c *disconnectableClient) Get(ctx context.Context, on schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	if c.disconnected.Load() {
		return nil, errNoRoute
	}
	return c.Client.Get(ctx, on, namespace, name, sub)
}

func (c *disconnectableClient) Create(ctx context.Context, on schema.GroupResource, obj kind.Object) (kind.Object, error) {
	if c.disconnected.Load() {
		return nil, errNoRoute
	}
	return c.Client.Create(ctx, on, obj)
}

func (c *disconnectableClient) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	if c.disconnected.Load() {
		return nil, errNoRoute
	}
	return c.Client.Update(ctx, on, obj, sub)
}

// election runs several contenders and records the current leader and since when it leads. The test fails when two lead at
// the same time.
type election struct {
	*testing.T
	mu      sync.Mutex
	current string
	since   time.Time
	stop    map[string]context.CancelFunc
	clients map[string]*disconnectableClient
	runs    map[string]*control.Leadership
	wg      sync.WaitGroup
}

func newElection(t *testing.T) *election {
	return &election{T: t, stop: map[string]context.CancelFunc{}, clients: map[string]*disconnectableClient{},
		runs: map[string]*control.Leadership{}}
}

// end stops all contenders and waits for them to return.
func (c *election) end() {
	for _, stop := range c.stop {
		stop()
	}
	c.wg.Wait()
}

// addContender starts a contender for the Lease.
func (c *election) addContender(cluster *proatest.Cluster, name string) {
	ctx, stop := context.WithCancel(c.Context())
	c.stop[name], c.clients[name] = stop, &disconnectableClient{Client: cluster.Client}
	c.runs[name] = &control.Leadership{Lease: "test", Identity: name}
	c.wg.Go(func() {
		c.runs[name].Run(ctx, slog.New(slog.DiscardHandler), c.clients[name], func(ctx context.Context) {
			c.mu.Lock()
			if c.current != "" {
				c.Errorf("%s leads while %s does", name, c.current)
			}
			c.current, c.since = name, time.Now()
			c.mu.Unlock()
			<-ctx.Done()
			c.mu.Lock()
			c.current = ""
			c.mu.Unlock()
		})
	})
}

func (c *election) leader() string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

func TestLeadership(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		c := newElection(t)
		c.addContender(cluster, "a")
		if got := c.leader(); got != "a" {
			t.Fatalf("%q leads, want a, the only contender", got)
		}
		c.addContender(cluster, "b")
		time.Sleep(10 * time.Minute)
		if got := c.leader(); got != "a" {
			t.Fatalf("%q leads, want a: it renews", got)
		}

		// The connection of a is cut: a stops by itself, and b takes over in two seconds.
		at := time.Now()
		c.clients["a"].disconnected.Store(true)
		time.Sleep(2100 * time.Millisecond)
		if got := c.leader(); got != "b" || c.since.Sub(at) > 2*time.Second {
			t.Fatalf("%q leads since %v, want b in at most two seconds", got, c.since.Sub(at))
		}
		c.clients["a"].disconnected.Store(false)
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
// reports, and one of them leads again soon after the outage, although no other client changes the Lease.
func TestLeadershipAfterOutage(t *testing.T) {
	for _, outage := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 10 * time.Second, time.Minute, time.Hour} {
		for _, names := range [][]string{{"a"}, {"a", "b"}} {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
				c := newElection(t)
				for _, name := range names {
					c.addContender(cluster, name)
					time.Sleep(time.Second)
				}
				for _, c := range c.clients {
					c.disconnected.Store(true)
				}
				time.Sleep(outage)
				short, long := outage <= time.Second, outage >= 10*time.Second
				if got := c.leader(); got != "" && long {
					t.Errorf("%q leads without a store for %v", got, outage)
				}
				for name, l := range c.runs {
					if err := l.Check(); short && err != nil || long && err == nil {
						t.Errorf("without a store for %v the check of %s says %v", outage, name, err)
					}
				}
				for _, c := range c.clients {
					c.disconnected.Store(false)
				}
				time.Sleep(time.Second)
				if got := c.leader(); got == "" {
					t.Errorf("no contender leads a second after the outage, with %v, after %v", names, outage)
				}
				for name, l := range c.runs {
					if err := l.Check(); err != nil {
						t.Errorf("after %v the check of %s says %v", outage, name, err)
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
		c := newElection(t)
		c.addContender(cluster, "a")
		c.clients["a"].disconnected.Store(true)
		time.Sleep(time.Minute)
		at := time.Now()
		c.end()
		if took := time.Since(at); took > 0 {
			t.Errorf("the contender ended after %v", took)
		}
		cluster.Stop()
	})
}

// TestLeadershipRespectsLeaseDurationOfHolder has a holder with a lease duration of 15 seconds, as upstream's controller manager has,
// which renews every ten: no contender takes over while it renews, nor before 15 seconds have passed since its last renewal.
func TestLeadershipRespectsLeaseDurationOfHolder(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		c := newElection(t)
		now := metav1.NewMicroTime(time.Now())
		o, err := cluster.Client.Create(t.Context(), gr.Leases, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "test"},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: new("upstream"), LeaseDurationSeconds: new(int32(15)), AcquireTime: &now,
				RenewTime: &now},
		})
		if err != nil {
			t.Fatal(err)
		}
		c.addContender(cluster, "a")
		c.addContender(cluster, "b")
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
				t.Errorf("the check of %s returns %v while another contender leads", name, err)
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
		if seconds := o.(*coordinationv1.Lease).Spec.LeaseDurationSeconds; seconds == nil || *seconds != 2 {
			t.Errorf("the Lease says %v seconds, want the two after which others take over", seconds)
		}
		c.end()
		cluster.Stop()
	})
}
