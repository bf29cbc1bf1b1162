// Package kv has the types and interfaces that the store and its users share: a stored pair, a change of it, a
// conditional write, and the read, watch and write sides of a store. It imports nothing of this module and contains no
// logic.
package kv

import (
	"context"
	"errors"
	"fmt"
	"iter"
)

// Pair is one stored key with its value and the revision of its last change.
type Pair struct {
	Key   string
	Value []byte
	Rev   int64
	// Stale reports that the store would now encode the value differently, for example because the encryption key was
	// rotated. Writing the same value again brings it up to date.
	Stale bool
	// Err is why the value cannot be decrypted; nil if it can. If it is set, Value has the encrypted bytes.
	Err error
}

// Change is one change of one key.
type Change struct {
	Pair
	// Prev is the pair before the change; its Rev is 0 when the key did not exist.
	Prev Pair
	// Delete reports that the key was deleted at Pair.Rev; Pair.Value is nil then.
	Delete bool
}

// Batch is what a watch delivers at once: all changes up to Rev. A batch without changes is a progress notification:
// everything up to Rev has been delivered.
type Batch struct {
	Changes []Change
	Rev     int64
}

// Write is one conditional change of a transaction.
type Write struct {
	Key string
	// Value is stored under Key; nil deletes the key. The caller must not change it afterwards, because watches may
	// deliver the same memory.
	Value []byte
	// Rev is the revision the key must have now; 0 means that it must not exist.
	Rev int64
	// Keep writes nothing and only checks the condition.
	Keep bool
	// TTL is the number of seconds after which the key expires; 0 for never.
	TTL int64
	// UseReserve lets a transaction use the disk space that the store keeps in reserve when its disk is nearly full. It
	// is for deletions, for writes that lead to deletions, and for what a server writes when it starts.
	UseReserve bool
}

// Range selects pairs to list.
type Range struct {
	// Prefix selects the keys that begin with it.
	Prefix string
	// From skips the keys before it; it must begin with Prefix or be empty.
	From string
	// Limit bounds the number of pairs; 0 means no bound.
	Limit int64
	// Rev reads the state at a past revision; 0 reads the current state, linearizably.
	Rev int64
	// Uncounted says that the caller does not need Page.Total, which is expensive. Page.Total is then 0 or correct.
	Uncounted bool
}

// Page is the answer to a Range.
type Page struct {
	Pairs []Pair
	// Rev is the store's revision at which the page was read.
	Rev int64
	// Total counts the pairs from Range.From on, those in Pairs included.
	Total int64
}

// Reader is the read side of the store.
type Reader interface {
	Get(ctx context.Context, key string) (Pair, bool, error)
	List(ctx context.Context, r Range) (Page, error)
}

// Watcher is the watch side of the store.
type Watcher interface {
	// Watch yields every change of keys with the prefix after the revision, in order, without gap or
	// repetition, until ctx ends or an error is yielded. ErrCompacted says that after is too old.
	Watch(ctx context.Context, prefix string, after int64) iter.Seq2[Batch, error]
	// Progress requests that every watch, including those that begin later, soon yields a batch whose Rev is at least
	// the current revision.
	Progress(ctx context.Context) error
	// Fresh returns the revision that a reader of prefix, which is fed by a watch, must have reached to see every write
	// that was acknowledged before the call.
	Fresh(ctx context.Context, prefix string) (int64, error)
}

// Committer is the write side of the store.
type Committer interface {
	// Commit makes all writes at one revision, or none. A failed condition is a *Conflict.
	Commit(ctx context.Context, writes ...Write) (rev int64, err error)
}

var (
	// ErrCompacted is the error of a read or watch at a revision that is no longer kept.
	ErrCompacted = errors.New("the requested revision has been compacted")
	// ErrFuture is the error of a read at a revision that the store has not reached.
	ErrFuture = errors.New("the requested revision is in the future")
	// ErrUnavailable is the error of an operation that the store did not answer; whether a write was made is unknown.
	ErrUnavailable = errors.New("the store is not available")
	// ErrTooLarge is the error of a write that exceeds the size limit of the store.
	ErrTooLarge = errors.New("the request is too large for the store")
	// ErrFull is the error of a write that was not made because the disk or the database is full.
	ErrFull = errors.New("the store has no room")
)

// Conflict is the error of a transaction of which a condition did not hold.
type Conflict struct {
	// Key is the first key whose condition failed.
	Key string
	// Now is the current pair of Key; its Rev is 0 if the key does not exist.
	Now Pair
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("key %s is at revision %d", c.Key, c.Now.Rev)
}
