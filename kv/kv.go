// Package kv holds the words that the store and those who read it share: a stored pair, a change to it,
// and a write with its condition. It is a leaf; it does nothing.
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
	// Stale says that the store would lay out the same value differently today, because another key encrypts for example:
	// to write it again is not in vain.
	Stale bool
	// Err says why the value cannot be decrypted; nil if it can. Value is then what is stored.
	Err error
}

// Change is one event of one key, in the order of revisions.
type Change struct {
	Pair
	// Prev is the pair before the change; its Rev is 0 when the key did not exist.
	Prev Pair
	// Delete says that the key is gone at Pair.Rev; Pair.Value is nil then.
	Delete bool
}

// Batch is what a watch delivers at once: all changes up to Rev. A batch without changes is progress:
// nothing that the watch covers has happened up to Rev that was not delivered before.
type Batch struct {
	Changes []Change
	Rev     int64
}

// Write is one conditional change of a transaction.
type Write struct {
	Key string
	// Value is stored under Key; nil deletes it. It belongs to the store from then on: whoever watches may be given the same
	// memory.
	Value []byte
	// Rev is the revision the key must have now; 0 means that it must not exist.
	Rev int64
	// Keep writes nothing and only checks the condition.
	Keep bool
	// TTL, in seconds, lets the key expire; 0 keeps it.
	TTL int64
	// UseReserve lets a transaction use some of the room that the store keeps free when its disk is nearly full. It is for deletions
	// and what leads to them, and for what a server needs to start.
	UseReserve bool
}

// Range selects pairs to list.
type Range struct {
	// Prefix selects the keys that begin with it.
	Prefix string
	// From skips keys before it; it must begin with Prefix or be empty.
	From string
	// Limit bounds the number of pairs; 0 means no bound.
	Limit int64
	// Rev reads the past as of that revision; 0 reads the present, linearizably.
	Rev int64
	// Uncounted says that nobody wants to know Page.Total, which takes time to find out. It is then 0, or still right.
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
	// Progress asks that every watch, and every one that begins later, soon yields a batch whose Rev is at least the present
	// revision.
	Progress(ctx context.Context) error
	// Fresh returns a revision that a reader of prefix must have reached to see every write that
	// was acknowledged before the call.
	Fresh(ctx context.Context, prefix string) (int64, error)
}

// Committer is the write side of the store.
type Committer interface {
	// Commit makes all writes at one revision, or none. A failed condition is a *Conflict.
	Commit(ctx context.Context, writes ...Write) (rev int64, err error)
}

var (
	// ErrCompacted says that the asked revision is no longer kept.
	ErrCompacted = errors.New("the requested revision has been compacted")
	// ErrFuture says that the asked revision lies ahead of the store.
	ErrFuture = errors.New("the requested revision is in the future")
	// ErrUnavailable says that the store did not answer; whether a write happened is unknown.
	ErrUnavailable = errors.New("the store is not available")
	// ErrTooLarge says that the store refuses a write of that size.
	ErrTooLarge = errors.New("the request is too large for the store")
	// ErrFull says that the store has no room for a write, and has not made it.
	ErrFull = errors.New("the store has no room")
)

// Conflict is the error of a transaction one of whose conditions did not hold.
type Conflict struct {
	// Key is the first key whose condition failed.
	Key string
	// Now is its present pair; Rev 0 when it does not exist.
	Now Pair
}

func (c *Conflict) Error() string {
	return fmt.Sprintf("key %s is at revision %d", c.Key, c.Now.Rev)
}
