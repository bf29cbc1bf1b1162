// Package storetest is the conformance test of the store interfaces in package kv. Every implementation has to pass it:
// the embedded etcd, an external etcd and the store in memory.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"proa.dev/kv"
)

// Store is the store under test.
type Store interface {
	kv.Reader
	kv.Watcher
	kv.Committer
	// Compact removes the history before the revision.
	Compact(ctx context.Context, rev int64) error
}

// waitLimit is how long a test waits for something that must happen, before it fails.
const waitLimit = 2 * time.Minute

// Run runs the suite. open returns an empty store and closes it when the test ends.
func Run(t *testing.T, open func(t *testing.T) Store) {
	for _, c := range []struct {
		name string
		test func(*bench)
	}{
		{"CreateAndGet", createAndGet},
		{"GetAbsent", getAbsent},
		{"EmptyValueIsNoDelete", emptyValue},
		{"CreateConflict", createConflict},
		{"UpdateConflict", updateConflict},
		{"ConflictOfAbsent", conflictOfAbsent},
		{"DeleteAndRecreate", deleteAndRecreate},
		{"Transaction", transaction},
		{"TransactionIsAllOrNothing", allOrNothing},
		{"ConflictNamesTheFirst", conflictNamesFirst},
		{"KeepOnlyChecks", keepOnlyChecks},
		{"CommitNothing", commitNothing},
		{"TooLarge", tooLarge},
		{"Canceled", canceled},
		{"List", list},
		{"ListEverything", listEverything},
		{"ListPages", listPages},
		{"ListPast", listPast},
		{"ListFuture", listFuture},
		{"Compaction", compaction},
		{"Contention", contention},
		{"WatchOrder", watchOrder},
		{"WatchPast", watchPast},
		{"WatchManyPast", watchManyPast},
		{"WatchPrefix", watchPrefix},
		{"WatchTransactionInOneBatch", watchTransaction},
		{"WatchCompacted", watchCompacted},
		{"WatchPrevCompacted", watchPrevCompacted},
		{"WatchEndsWithContext", watchEnds},
		{"WatchSlowReader", watchSlow},
		{"WatchLargeTransaction", watchLarge},
		{"WatchThenGet", watchThenGet},
		{"Progress", progress},
		{"ProgressUnderLoad", progressUnderLoad},
		{"Fresh", fresh},
		{"FreshCoversReads", freshCoversReads},
		{"FreshThenWatch", freshThenWatch},
		{"ProgressThenWatch", progressThenWatch},
		{"TTL", ttl},
		{"TTLRemovedByUpdate", ttlRemoved},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			defer cancel()
			s := open(t)
			c.test(&bench{TB: t, ctx: ctx, s: s})
		})
	}
}

// bench is a test with a store and the steps that most tests share.
type bench struct {
	testing.TB
	ctx context.Context
	s   Store
}

// commit makes the writes, which must succeed.
func (b *bench) commit(writes ...kv.Write) int64 {
	b.Helper()
	rev, err := b.s.Commit(b.ctx, writes...)
	if err != nil {
		b.Fatalf("commit: %v", err)
	}
	return rev
}

// put writes a key whose current revision is rev.
func (b *bench) put(key, value string, rev int64) int64 {
	b.Helper()
	return b.commit(kv.Write{Key: key, Value: []byte(value), Rev: rev})
}

// remove deletes a key whose current revision is rev.
func (b *bench) remove(key string, rev int64) int64 {
	b.Helper()
	return b.commit(kv.Write{Key: key, Rev: rev})
}

// conflict makes the writes, which must fail with a conflict for key, and returns the current pair of that key.
func (b *bench) conflict(key string, writes ...kv.Write) kv.Pair {
	b.Helper()
	rev, err := b.s.Commit(b.ctx, writes...)
	c, ok := errors.AsType[*kv.Conflict](err)
	if !ok {
		b.Fatalf("got revision %d and %v, want a conflict", rev, err)
	}
	if c.Key != key {
		b.Fatalf("conflict of %q, want %q", c.Key, key)
	}
	return c.Now
}

// wantPair checks the current pair of a key; revision 0 means that the key does not exist.
func (b *bench) wantPair(key, value string, rev int64) {
	b.Helper()
	p, ok, err := b.s.Get(b.ctx, key)
	switch {
	case err != nil:
		b.Fatalf("get %s: %v", key, err)
	case ok != (rev != 0):
		b.Fatalf("get %s: present is %v", key, ok)
	case !ok:
		if p.Key != "" || p.Value != nil || p.Rev != 0 {
			b.Fatalf("get %s: absent but %+v", key, p)
		}
	case p.Key != key || string(p.Value) != value || p.Rev != rev:
		b.Fatalf("get %s: got %s, want %q at %d", key, show(p), value, rev)
	}
}

// list returns a page, which must succeed.
func (b *bench) list(r kv.Range) kv.Page {
	b.Helper()
	p, err := b.s.List(b.ctx, r)
	if err != nil {
		b.Fatalf("list %+v: %v", r, err)
	}
	return p
}

// wantErr checks the class of an error.
func (b *bench) wantErr(err, want error) {
	b.Helper()
	if !errors.Is(err, want) {
		b.Fatalf("got %v, want %v", err, want)
	}
}

func show(p kv.Pair) string {
	v := p.Value
	if len(v) > 40 {
		v = append(bytes.Clone(v[:40]), "..."...)
	}
	return fmt.Sprintf("%s=%q at %d", p.Key, v, p.Rev)
}
