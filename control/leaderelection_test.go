package control_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
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
	"proa.dev/internal/wait"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// unreliableClient is a client whose requests take as long as latency says, half of it before they reach the server, and whose
// connection can be cut: then every request fails, and nothing it writes arrives.
type unreliableClient struct {
	client.Client
	latency      atomic.Int64
	disconnected atomic.Bool
}

var errNoRoute = errors.New("no route")

// request sends one request and returns its answer. Like a real connection it may lose the answer to a write that has arrived.
func (c *unreliableClient) request(ctx context.Context, send func() (kind.Object, error)) (kind.Object, error) {
	half := time.Duration(c.latency.Load()) / 2
	if err := wait.Sleep(ctx, half); err != nil {
		return nil, err
	}
	if c.disconnected.Load() {
		return nil, errNoRoute
	}
	o, err := send()
	if err := wait.Sleep(ctx, half); err != nil {
		return nil, err
	}
	return o, err
}

func (c *unreliableClient) Get(ctx context.Context, on schema.GroupResource, namespace, name, sub string) (kind.Object, error) {
	return c.request(ctx, func() (kind.Object, error) { return c.Client.Get(ctx, on, namespace, name, sub) })
}

func (c *unreliableClient) Create(ctx context.Context, on schema.GroupResource, obj kind.Object) (kind.Object, error) {
	return c.request(ctx, func() (kind.Object, error) { return c.Client.Create(ctx, on, obj) })
}

func (c *unreliableClient) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	return c.request(ctx, func() (kind.Object, error) { return c.Client.Update(ctx, on, obj, sub) })
}

// election runs several contenders and records the current leader, since when it leads, and how often one has begun to lead. The
// test fails when two lead at the same time.
type election struct {
	*testing.T
	mu      sync.Mutex
	current string
	since   time.Time
	begun   int
	// stopTime is how long the work of a leader takes to return after it was told to stop.
	stopTime time.Duration
	stop     map[string]context.CancelFunc
	clients  map[string]*unreliableClient
	runs     map[string]*control.Leadership
	wg       sync.WaitGroup
}

func newElection(t *testing.T) *election {
	return &election{T: t, stop: map[string]context.CancelFunc{}, clients: map[string]*unreliableClient{},
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
	contender, own := &control.Leadership{Lease: "test", Identity: name}, &unreliableClient{Client: cluster.Client}
	c.stop[name], c.clients[name], c.runs[name] = stop, own, contender
	c.wg.Go(func() {
		contender.Run(ctx, slog.New(slog.DiscardHandler), own, func(ctx context.Context) {
			c.mu.Lock()
			if c.current != "" {
				c.Errorf("%s leads while %s does", name, c.current)
			}
			c.current, c.since = name, time.Now()
			c.begun++
			c.mu.Unlock()
			<-ctx.Done()
			c.mu.Lock()
			c.current = ""
			c.mu.Unlock()
			time.Sleep(c.stopTime)
		})
	})
}

// setLatency makes each request of all contenders take d.
func (c *election) setLatency(d time.Duration) {
	for _, one := range c.clients {
		one.latency.Store(int64(d))
	}
}

// leader returns the contender that leads now, or an empty string.
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

// TestLeadershipWithSlowStore checks that a leader keeps the Lease although each request takes almost a third of its duration,
// that the other contender does not take it meanwhile, and takes it when the leader is cut off.
func TestLeadershipWithSlowStore(t *testing.T) {
	for _, latency := range []time.Duration{100 * time.Millisecond, 450 * time.Millisecond, 640 * time.Millisecond} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
			c := newElection(t)
			c.addContender(cluster, "a")
			c.setLatency(latency)
			time.Sleep(2 * time.Second)
			c.addContender(cluster, "b")
			c.setLatency(latency)
			time.Sleep(time.Minute)
			if got := c.leader(); got != "a" || time.Since(c.since) < time.Minute || c.begun != 1 {
				t.Errorf("with requests of %v %q leads since %v, and leaders began %d times; want a, once", latency, got,
					time.Since(c.since), c.begun)
			}
			for name, l := range c.runs {
				if err := l.Check(); err != nil {
					t.Errorf("with requests of %v the check of %s says %v", latency, name, err)
				}
			}
			at := time.Now()
			c.clients["a"].disconnected.Store(true)
			time.Sleep(4 * time.Second)
			if got, limit := c.leader(), 2*time.Second+3*latency; got != "b" || c.since.Sub(at) > limit {
				t.Errorf("with requests of %v %q leads %v after a is cut off, want b in at most %v", latency, got, c.since.Sub(at), limit)
			}
			c.end()
			cluster.Stop()
		})
	}
}

// TestLeadershipWithVaryingLatency checks that two contenders never lead at the same time, whatever time requests take.
func TestLeadershipWithVaryingLatency(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		c := newElection(t)
		for _, name := range []string{"a", "b", "c"} {
			c.addContender(cluster, name)
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 1000 {
			for _, name := range []string{"a", "b", "c"} {
				c.clients[name].latency.Store(random.Int64N(int64(1200 * time.Millisecond)))
				c.clients[name].disconnected.Store(random.IntN(8) == 0)
			}
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
		}
		synctest.Wait()
		if c.begun < 100 {
			t.Errorf("leaders began %d times, want many changes", c.begun)
		}
		c.end()
		cluster.Stop()
	})
}

// hangingClient is a client whose updates do not return for a minute once it hangs, even if their context ends.
type hangingClient struct {
	client.Client
	hangs atomic.Bool
	// sent is when the last update was sent that did not hang.
	sent time.Time
}

func (c *hangingClient) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	if c.hangs.Load() {
		time.Sleep(time.Minute)
		return nil, errNoRoute
	}
	c.sent = time.Now()
	return c.Client.Update(ctx, on, obj, sub)
}

// TestLeadershipEndsWhileRequestHangs checks that a leader stops two thirds of the Lease's duration after its last successful
// renewal was sent, although a request to renew it does not return.
func TestLeadershipEndsWhileRequestHangs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
		ctx, stop := context.WithCancel(t.Context())
		c := &hangingClient{Client: cluster.Client}
		l := &control.Leadership{Lease: "test", Identity: "a"}
		var ended time.Time
		var wg sync.WaitGroup
		wg.Go(func() {
			l.Run(ctx, slog.New(slog.DiscardHandler), c, func(ctx context.Context) {
				<-ctx.Done()
				ended = time.Now()
			})
		})
		time.Sleep(10 * time.Second)
		c.hangs.Store(true)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if ended.IsZero() || ended.Sub(c.sent) > 2*time.Second*2/3 || l.IsLeading() {
			t.Errorf("the leader ended %v after its last renewal, want at most two thirds of two seconds", ended.Sub(c.sent))
		}
		if l.Check() == nil {
			t.Error("the check does not say that nobody leads")
		}
		stop()
		wg.Wait()
		cluster.Stop()
	})
}

// TestCheckWhileLeadershipFlaps checks that Check fails on each contender while the store is too slow for any leader to keep the
// Lease, and no longer fails once one keeps it.
func TestCheckWhileLeadershipFlaps(t *testing.T) {
	for _, latency := range []time.Duration{700 * time.Millisecond, 900 * time.Millisecond} {
		for _, names := range [][]string{{"a"}, {"a", "b"}} {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
				c := newElection(t)
				for _, name := range names {
					c.addContender(cluster, name)
				}
				time.Sleep(10 * time.Second)
				c.setLatency(latency)
				time.Sleep(20 * time.Second)
				for range 60 {
					time.Sleep(500 * time.Millisecond)
					for name, l := range c.runs {
						if l.Check() == nil {
							t.Fatalf("with requests of %v the check of %s of %v says nothing; leaders began %d times", latency, name,
								names, c.begun)
						}
					}
				}
				// All but the last contender are cut off, and the last keeps the Lease: the others see it, and all is well.
				last := names[len(names)-1]
				for _, name := range names {
					c.clients[name].disconnected.Store(name != last)
				}
				c.setLatency(0)
				time.Sleep(7 * time.Second)
				if got := c.leader(); got != last {
					t.Errorf("%q leads, want %s", got, last)
				}
				for range 60 {
					time.Sleep(500 * time.Millisecond)
					for name, l := range c.runs {
						if err := l.Check(); err != nil {
							t.Fatalf("with %v the check of %s says %v while %s leads", names, name, err, last)
						}
					}
				}
				c.end()
				cluster.Stop()
			})
		}
	}
}

// TestCheckWhileWorkStops checks that Check and IsLeading do not claim that a process leads which has lost the Lease and whose work
// takes long to stop. Check is well again when it sees that another process leads.
func TestCheckWhileWorkStops(t *testing.T) {
	for _, names := range [][]string{{"a"}, {"a", "b"}} {
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.InDir(dir))
			c := newElection(t)
			c.stopTime = time.Minute
			for _, name := range names {
				c.addContender(cluster, name)
				time.Sleep(10 * time.Second)
			}
			c.clients["a"].disconnected.Store(true)
			time.Sleep(10 * time.Second)
			a := c.runs["a"]
			if err := a.Check(); a.IsLeading() || (err == nil) != (len(names) > 1) {
				t.Errorf("of %v a has lost the Lease and leads %v, and its check says %v", names, a.IsLeading(), err)
			}
			c.end()
			cluster.Stop()
		})
	}
}
