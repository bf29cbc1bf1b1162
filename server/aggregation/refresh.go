package aggregation

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/internal/wait"
)

const (
	// refreshInterval is how often documents are fetched again.
	refreshInterval = time.Minute
	// firstRetry is the pause after a failure; it doubles up to refreshInterval.
	firstRetry = 500 * time.Millisecond
)

// refresher keeps the documents of one group version up to date.
type refresher struct {
	now  atomic.Pointer[documents]
	wake wait.Signal
	stop context.CancelFunc
	// inFlight counts the requests that wait for the server's response; see maxInFlight.
	inFlight atomic.Int64
}

// documents returns the server's documents; nil before it has responded, and after it has failed.
func (k *refresher) documents() *documents { return k.now.Load() }

// refetch makes the refresher fetch the documents at once.
func (k *refresher) refetch() { k.wake.Send() }

// startRefresher starts a refresher. a.mu is held.
func (a *Aggregator) startRefresher(ctx context.Context, b *backend) *refresher {
	k := &refresher{wake: wait.NewSignal()}
	ctx, k.stop = context.WithCancel(ctx)
	a.refreshers[b.name] = k
	a.wg.Go(func() { a.refresh(ctx, k, b) })
	return k
}

// stopRefresher stops the refresher of an APIService. a.mu is held.
func (a *Aggregator) stopRefresher(name string) {
	if k := a.refreshers[name]; k != nil {
		k.stop()
		delete(a.refreshers, name)
	}
}

// refresh fetches the documents until ctx ends: when it is woken, every refreshInterval, and after failures with
// back-off. It also does so while the APIService is unavailable, so that its resources are known as soon as it is
// available.
func (a *Aggregator) refresh(ctx context.Context, k *refresher, b *backend) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := wait.Backoff{First: firstRetry, Max: refreshInterval}
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
			retry.Reset()
		case <-timer.C:
		}
		d, err := a.fetch(ctx, b, k.documents())
		if ctx.Err() != nil {
			return
		}
		if was := k.now.Swap(d); was == nil || d == nil || was.etag == "" || was.etag != d.etag {
			a.notify()
		}
		if err != nil {
			a.Log.DebugContext(ctx, "cannot fetch the documents of an aggregated API server", "apiservice", b.name, "err", err)
			timer.Reset(retry.Next())
			continue
		}
		retry.Reset()
		timer.Reset(refreshInterval)
	}
}

func compareVersions(a, b schema.GroupVersion) int {
	return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.Version, b.Version))
}
