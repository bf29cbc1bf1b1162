package store

import (
	"context"
	"sync"
	"time"

	"proa.dev/kv"
)

const (
	// maxPerLease bounds the keys of one lease, because etcd deletes them all in one transaction when the lease
	// expires.
	maxPerLease = 1000
	// maxLeaseReuse bounds how long one lease is used for new keys, in seconds.
	maxLeaseReuse = 60
)

// leases shares leases between writes with the same TTL that are made within a short time, so that ten thousand Events
// do not need ten thousand leases. A key may therefore live longer than its TTL by the reuse window, but never shorter.
type leases struct {
	mu    sync.Mutex
	byTTL map[int64]*lease
}

type lease struct {
	// granting is held by the writer that requests a new lease, so that concurrent writers share it. It is a channel
	// rather than a mutex, because etcd may take long to answer and a writer waits no longer than its context.
	granting chan struct{}

	mu    sync.Mutex // guards what follows
	id    int64
	until time.Time
	used  int
}

// use returns the lease if it can be used for one more key.
func (cur *lease) use(now time.Time) (id int64, ok bool) {
	cur.mu.Lock()
	defer cur.mu.Unlock()
	if cur.id == 0 || cur.used >= maxPerLease || !now.Before(cur.until) {
		return 0, false
	}
	cur.used++
	return cur.id, true
}

// reuseFor returns for how many seconds a lease may be used for new keys: a twentieth of the TTL, at most a minute.
func reuseFor(ttl int64) int64 {
	return min(ttl/20, maxLeaseReuse)
}

// take returns a lease that does not expire within ttl seconds.
func (l *leases) take(ctx context.Context, ttl int64, now time.Time, grant func(ttl int64) (int64, error)) (int64, error) {
	l.mu.Lock()
	cur := l.byTTL[ttl]
	if cur == nil {
		if l.byTTL == nil {
			l.byTTL = map[int64]*lease{}
		}
		cur = &lease{granting: make(chan struct{}, 1)}
		l.byTTL[ttl] = cur
	}
	l.mu.Unlock()

	select {
	case cur.granting <- struct{}{}:
		defer func() { <-cur.granting }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	if id, ok := cur.use(now); ok {
		return id, nil
	}
	reuse := reuseFor(ttl)
	id, err := grant(ttl + reuse)
	if err != nil {
		return 0, err
	}
	cur.mu.Lock()
	defer cur.mu.Unlock()
	cur.id, cur.used, cur.until = id, 1, now.Add(time.Duration(reuse)*time.Second)
	return id, nil
}

// forget removes leases that etcd no longer has.
func (l *leases) forget(ids []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, cur := range l.byTTL {
		cur.mu.Lock()
		for _, id := range ids {
			if cur.id == id {
				cur.id = 0
			}
		}
		cur.mu.Unlock()
	}
}

// leasesFor returns the lease of each write, or nil if no write has a TTL.
func (e *Etcd) leasesFor(ctx context.Context, writes []kv.Write) ([]int64, error) {
	var ids []int64
	for i := range writes {
		w := &writes[i]
		if w.TTL <= 0 || w.Keep || w.Value == nil {
			continue
		}
		id, err := e.leases.take(ctx, w.TTL, time.Now(), func(ttl int64) (int64, error) {
			return e.member.grant(ctx, ttl)
		})
		if err != nil {
			return nil, err
		}
		if ids == nil {
			ids = make([]int64, len(writes))
		}
		ids[i] = id
	}
	return ids, nil
}
