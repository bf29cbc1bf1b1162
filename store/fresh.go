package store

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// freshness has a watermark for each prefix that is read: the highest revision of a change with that prefix that any
// caller has seen or made. With it a cache that is fed by a watch can answer linearizably without a request to etcd: it
// waits until it has reached the watermark.
//
// Why that is linearizable: the embedded member has no other client, so every write goes through Commit, and Commit
// raises the watermark of each written key before it returns. A write that was acknowledged before the call of fresh
// has therefore raised the watermark, and a cache that has reached it contains the write. A write that is not
// acknowledged yet may be seen or not, unless some caller has seen it already: a caller that has read it from the cache
// finds the cache at that revision or later, and one that has read it from etcd (Get, List, a Conflict) went through
// saw, which raises the watermark, too. The expiry of a key is not a write of a caller; it is seen when the watch
// delivers it.
//
// A prefix is registered by the first call for it. Registration first publishes the watermark and then raises it to the
// applied revision. A concurrent Commit either finds the watermark and raises it, or it looked before the watermark was
// published, and then it was applied before the revision was read.
type freshness struct {
	// registering serializes the registration of prefixes.
	registering sync.Mutex
	// marks has the watermarks by prefix; prefixes end with a slash. The map is copied on write.
	marks atomic.Pointer[map[string]*watermark]
	// current returns the revision that the member has applied.
	current func() int64
}

// watermark is the watermark of one prefix.
type watermark struct {
	rev atomic.Int64
	// ready is set when rev includes the changes before the registration.
	ready atomic.Bool
}

func (m *watermark) raise(rev int64) { raise(&m.rev, rev) }

// raise sets a revision to rev, unless it is higher already.
func raise(known *atomic.Int64, rev int64) {
	for {
		old := known.Load()
		if rev <= old || known.CompareAndSwap(old, rev) {
			return
		}
	}
}

// fresh returns the watermark of prefix. Watermarks exist for whole path elements only; for a prefix that ends within
// an element, the watermark of the elements before it is returned, which is never lower.
func (f *freshness) fresh(prefix string) int64 {
	prefix = prefix[:strings.LastIndexByte(prefix, '/')+1]
	if prefix == "" {
		return f.current()
	}
	if marks := f.marks.Load(); marks != nil {
		if m := (*marks)[prefix]; m != nil && m.ready.Load() {
			return m.rev.Load()
		}
	}
	return f.register(prefix)
}

func (f *freshness) register(prefix string) int64 {
	f.registering.Lock()
	defer f.registering.Unlock()
	old := f.marks.Load()
	if old == nil {
		old = &map[string]*watermark{}
	}
	m := (*old)[prefix]
	if m == nil {
		m = &watermark{}
		next := maps.Clone(*old)
		next[prefix] = m
		f.marks.Store(&next)
	}
	m.raise(f.current())
	m.ready.Store(true)
	return m.rev.Load()
}

// saw raises the watermarks of every registered prefix of key.
func (f *freshness) saw(key string, rev int64) {
	marks := f.marks.Load()
	if marks == nil {
		return
	}
	for i := range len(key) {
		if key[i] != '/' {
			continue
		}
		if m := (*marks)[key[:i+1]]; m != nil {
			m.raise(rev)
		}
	}
}

// sawAll raises the watermarks of every registered prefix that has keys in common with prefix.
func (f *freshness) sawAll(prefix string, rev int64) {
	marks := f.marks.Load()
	if marks == nil {
		return
	}
	for p, m := range *marks {
		if strings.HasPrefix(p, prefix) || strings.HasPrefix(prefix, p) {
			m.raise(rev)
		}
	}
}
