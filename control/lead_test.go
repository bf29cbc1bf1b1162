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

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/control"
	"proa.dev/kinds/kind"
	"proa.dev/proatest"
)

// cut is a client whose process is gone for the cluster once it is cut: nothing it writes arrives.
type cut struct {
	client.Client
	gone atomic.Bool
}

func (c *cut) Update(ctx context.Context, on schema.GroupResource, obj kind.Object, sub string) (kind.Object, error) {
	if c.gone.Load() {
		return nil, errors.New("no route")
	}
	return c.Client.Update(ctx, on, obj, sub)
}

// contest runs two contenders and notes who leads when. It fails when both do.
type contest struct {
	*testing.T
	mu    sync.Mutex
	leads string
	since time.Time
	stop  map[string]context.CancelFunc
	cuts  map[string]*cut
	wg    sync.WaitGroup
}

func (c *contest) enter(cluster *proatest.Cluster, name string) {
	ctx, stop := context.WithCancel(c.Context())
	c.stop[name], c.cuts[name] = stop, &cut{Client: cluster.Client}
	c.wg.Go(func() {
		err := control.Leadership{Lease: "test", Identity: name}.Run(ctx, slog.New(slog.DiscardHandler), c.cuts[name], func(ctx context.Context) {
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
		if err != nil {
			c.Error(err)
		}
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
		c := &contest{T: t, stop: map[string]context.CancelFunc{}, cuts: map[string]*cut{}}
		c.enter(cluster, "a")
		if got := c.leader(); got != "a" {
			t.Fatalf("%q leads, want a: nobody else is there", got)
		}
		c.enter(cluster, "b")
		time.Sleep(10 * time.Minute)
		if got := c.leader(); got != "a" {
			t.Fatalf("%q leads, want a: it renews", got)
		}

		// a is cut off: it stops by itself, and b takes over in less than two seconds.
		at := time.Now()
		c.cuts["a"].gone.Store(true)
		time.Sleep(2 * time.Second)
		if got := c.leader(); got != "b" || c.since.Sub(at) >= 2*time.Second {
			t.Fatalf("%q leads since %v, want b in less than two seconds", got, c.since.Sub(at))
		}
		c.cuts["a"].gone.Store(false)
		time.Sleep(10 * time.Minute)
		if got := c.leader(); got != "b" {
			t.Fatalf("%q leads, want b", got)
		}

		// b ends in peace: a leads at once.
		at = time.Now()
		c.stop["b"]()
		time.Sleep(10 * time.Millisecond)
		if got := c.leader(); got != "a" || c.since.Sub(at) > 5*time.Millisecond {
			t.Fatalf("%q leads after %v, want a at once", got, c.since.Sub(at))
		}
		c.stop["a"]()
		c.wg.Wait()
		cluster.Stop()
	})
}
