package aggregate

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// refreshInterval is how often a server is asked again what it has.
	refreshInterval = time.Minute
	// firstRetry is the pause after a failure; it doubles up to refreshInterval.
	firstRetry = 500 * time.Millisecond
)

// keeper keeps the documents of one group version up to date.
type keeper struct {
	now  atomic.Pointer[documents]
	wake chan struct{}
	stop context.CancelFunc
	// passing are the requests that wait for the server's answer; see maxPassing.
	passing atomic.Int64
}

// documents are what the server says about the group version; nil before it has answered, and since it does not any more.
func (k *keeper) documents() *documents { return k.now.Load() }

// refetch lets the keeper ask at once.
func (k *keeper) refetch() {
	select {
	case k.wake <- struct{}{}:
	default: // it is about to
	}
}

// begin starts a keeper. a.mu is held.
func (a *Aggregator) begin(ctx context.Context, b *backend) *keeper {
	k := &keeper{wake: make(chan struct{}, 1)}
	ctx, k.stop = context.WithCancel(ctx) //nolint:gosec // end calls it, or the parent ends
	a.keepers[b.name] = k
	a.wg.Go(func() { a.keep(ctx, k, b) })
	return k
}

// end stops the keeper of an APIService. a.mu is held.
func (a *Aggregator) end(name string) {
	if k := a.keepers[name]; k != nil {
		k.stop()
		delete(a.keepers, name)
	}
}

// keep fetches the documents until ctx ends: when it is woken, every refreshInterval, and after failures with back-off. It asks also while the
// APIService is said to be unavailable, so that its resources are there as soon as it is not.
func (a *Aggregator) keep(ctx context.Context, k *keeper, b *backend) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
			retry = firstRetry
		case <-timer.C:
		}
		d, err := a.fetch(ctx, b, k.documents())
		if ctx.Err() != nil {
			return
		}
		if was := k.now.Swap(d); was == nil || d == nil || was.etag == "" || was.etag != d.etag {
			a.tell()
		}
		if err != nil {
			a.Log.DebugContext(ctx, "an aggregated API server does not say what it has", "apiservice", b.name, "err", err)
			timer.Reset(retry)
			retry = min(2*retry, refreshInterval)
			continue
		}
		retry = firstRetry
		timer.Reset(refreshInterval)
	}
}

func compareVersions(a, b schema.GroupVersion) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
}
