package store

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// freshness knows, for each prefix somebody reads, the highest revision of a change under it that anybody
// has learned of. It is how a reader fed by a watch answers linearizably without asking etcd.
//
// Why that is linearizable: the embedded member has no other client, so every write goes through Commit, and
// Commit raises the mark of each written key before it returns. A write acknowledged before the call to
// fresh has therefore raised the mark, and a reader that reached the mark's revision has seen it. A write
// that is not yet acknowledged may be seen or not, unless somebody has seen it already: somebody who
// read it from the reader finds the reader at or past it for good, and somebody who read it from etcd
// (Get, List, a Conflict) went through saw, which raised the mark as well. A key that expires is nobody's
// write; it is seen when the watch says so.
//
// A prefix is registered by the first call for it. Registration publishes the mark first and then raises
// it to the revision that etcd has applied. A concurrent Commit either finds the mark and raises it, or
// looked for it before it was published, and so was applied before the revision was read.
type freshness struct {
	// registering serializes the registration of prefixes.
	registering sync.Mutex
	// marks is copied on write. It is keyed by prefixes that end in a slash.
	marks atomic.Pointer[map[string]*mark]
	// current returns the revision that the member has applied.
	current func() int64
}

// mark is the watermark of one prefix.
type mark struct {
	// rev is the highest revision seen.
	rev atomic.Int64
	// ready is set when rev covers what happened before the registration.
	ready atomic.Bool
}

func (m *mark) raise(rev int64) { raise(&m.rev, rev) }

// raise makes a revision known, unless a later one is.
func raise(known *atomic.Int64, rev int64) {
	for {
		old := known.Load()
		if rev <= old || known.CompareAndSwap(old, rev) {
			return
		}
	}
}

// fresh returns the watermark of prefix. Marks are kept for whole path elements, so a prefix that ends within
// one gets the mark of the elements before it, which is never lower.
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
		old = &map[string]*mark{}
	}
	m := (*old)[prefix]
	if m == nil {
		m = &mark{}
		next := maps.Clone(*old)
		next[prefix] = m
		f.marks.Store(&next)
	}
	m.raise(f.current())
	m.ready.Store(true)
	return m.rev.Load()
}

// saw raises the marks of every registered prefix of key.
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

// sawAll raises the marks of every registered prefix that shares keys with prefix.
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
