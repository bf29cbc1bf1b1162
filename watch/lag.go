package watch

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// maxBehind and maxLag are how many revisions and how long a cache may be behind the writes of this process before
	// further writers wait.
	maxBehind, maxLag = 4096, 250 * time.Millisecond
	// maxHold is how long a writer waits for the cache. A cache whose store does not answer must not stop all writes.
	maxHold = time.Second
	// usualLag is how many revisions the cache is behind while it keeps up with many writers.
	usualLag = 64
	// sampleEvery and maxSamples bound what is remembered of the writes that the cache has not applied yet.
	sampleEvery, maxSamples = 10 * time.Millisecond, 1024
)

// lag tells how far a cache is behind the writes of this process.
type lag struct {
	written atomic.Int64 // the highest revision that was written

	mu      sync.Mutex // guards samples
	samples []sample   // of writes that the cache has not applied yet, oldest first
}

// sample stands for the writes up to a revision that were made since a time and after the sample before it.
type sample struct {
	rev int64
	at  time.Time
}

// add notes that a revision was written, while the cache was at another one.
func (l *lag) add(rev, applied int64, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written.Store(max(rev, l.written.Load()))
	l.forget(applied)
	if n := len(l.samples) - 1; n >= 0 && (n+1 == maxSamples || now.Sub(l.samples[n].at) < sampleEvery) {
		l.samples[n].rev = max(rev, l.samples[n].rev)
		return
	}
	l.samples = append(l.samples, sample{rev, now})
}

// oldest returns the oldest sample that a cache at a revision has not applied.
func (l *lag) oldest(applied int64) (out sample, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.forget(applied); len(l.samples) == 0 {
		return out, false
	}
	return l.samples[0], true
}

// forget removes the samples up to a revision.
func (l *lag) forget(applied int64) {
	l.samples = slices.DeleteFunc(l.samples, func(s sample) bool { return s.rev <= applied })
}

// loaded forgets the writes before a time, since when all objects were read from the store: the cache has them, or the store does not, as
// after it was restored from a backup, where revisions are lower than they were.
func (l *lag) loaded(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.samples = slices.DeleteFunc(l.samples, func(s sample) bool { return s.at.Before(since) })
	written := int64(0)
	for _, s := range l.samples {
		written = max(written, s.rev)
	}
	l.written.Store(written)
}

// Wrote notes that this process has written an object of the cache at a revision. Writers call it, so that the cache can
// hold further ones back and tell its lag.
func (c *Cache) Wrote(rev int64) {
	if applied := c.rev.Load(); applied < rev { // nearly always the watch is slower than the writer
		c.lag.add(rev, applied, time.Now())
	}
}

// Lag returns for how long the oldest write of this process that the cache does not have has been waiting; 0 if it has all
// of them.
func (c *Cache) Lag() time.Duration {
	s, found := c.lag.oldest(c.rev.Load())
	if !found {
		return 0
	}
	return time.Since(s.at)
}

// HoldBack delays a writer while the cache is too far behind the writes before it. That bounds the lag of the cache however
// fast clients write. It gives up after a second, when ctx ends, or when the cache cannot be filled at the moment: the
// write is made then nevertheless.
func (c *Cache) HoldBack(ctx context.Context) {
	if c.lag.written.Load()-c.rev.Load() <= usualLag {
		return
	}
	ctx, stop := context.WithTimeout(ctx, maxHold)
	defer stop()
	for {
		s, found := c.lag.oldest(c.rev.Load())
		until := c.lag.written.Load() - maxBehind
		if found && time.Since(s.at) > maxLag {
			until = max(until, s.rev)
		}
		if !found || c.rev.Load() >= until || c.await(ctx, until, nil) != nil {
			return
		}
	}
}
