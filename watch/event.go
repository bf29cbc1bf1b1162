package watch

import (
	"sync"
	"sync/atomic"
	"time"

	"proa.dev/kinds/kind"
)

// Type is what happened to an object.
type Type uint8

// The types of events.
const (
	Added Type = iota + 1
	Modified
	Deleted
	Bookmark
)

// String is the type's name on the wire.
func (t Type) String() string {
	return [...]string{"", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"}[t]
}

// Event is one change of one object. It is shared by all watchers and read-only.
type Event struct {
	Type Type
	Rev  int64
	// Now is the object after the change; for Deleted its last state with the revision of its end.
	Now *Entry
	// Prev is the object before the change, nil when there was none.
	Prev *Entry

	// unreadable says why the object after the change cannot be decoded. Such a change is told to nobody.
	unreadable error

	at            time.Time
	size          int    // of its objects in the store
	now, previous string // index values

	// frames is read by all watchers at once and replaced, never changed, under mu.
	frames atomic.Pointer[[]frame]
	mu     sync.Mutex // guards changes of frames, and gone
	gone   *Entry
}

// states are the outlines of the object before and after the change, nil where there is none.
func (e *Event) states() (old, now kind.Object) {
	if e.Prev != nil {
		old = e.Prev.Outline()
	}
	if e.Type != Deleted {
		now = e.Now.Outline()
	}
	return old, now
}

type frame struct {
	kind  Type
	coder any
	bytes []byte
}

// Encoded returns the bytes of the event as a watcher with the given coder sees it. The first one to
// ask makes them for all. coder must be comparable; as is what the event looks like to the watcher.
func (e *Event) Encoded(as Type, coder any, make func(Type, kind.Object) ([]byte, error)) ([]byte, error) {
	if b, ok := e.encoded(as, coder); ok {
		return b, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b, ok := e.encoded(as, coder); ok {
		return b, nil
	}
	b, err := make(as, e.object(as))
	if err != nil {
		return nil, err
	}
	next := []frame{{as, coder, b}}
	if have := e.frames.Load(); have != nil {
		next = append(next, *have...)
	}
	e.frames.Store(&next)
	return b, nil
}

// encoded finds bytes that were made before.
func (e *Event) encoded(as Type, coder any) ([]byte, bool) {
	have := e.frames.Load()
	if have == nil {
		return nil, false
	}
	for _, f := range *have {
		if f.kind == as && f.coder == coder {
			return f.bytes, true
		}
	}
	return nil, false
}

// Object is the object of the event as a watcher sees it: when an object leaves the watcher's selection,
// its previous state with the revision of the change.
func (e *Event) Object(as Type) kind.Object {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.object(as)
}

func (e *Event) object(as Type) kind.Object {
	if as != Deleted || e.Type == Deleted {
		return e.Now.Object()
	}
	if e.gone == nil {
		e.gone = e.Prev.ended(e.Rev)
	}
	return e.gone.Object()
}

// forget frees the encodings; who still needs one makes it again.
func (e *Event) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frames.Store(nil)
	e.gone = nil
}

// history keeps the recent events, oldest first, for watchers that start in the past.
type history struct {
	events []*Event
	bytes  int // what the objects of the events take in the store
	// floor is the revision after which nothing is missing.
	floor int64
}

// The history keeps events for a while, and never more than a bound.
const (
	historyAge = 5 * time.Minute
	historyMax = 16384
	historyMin = 256
	// An object in memory takes about four times as much as in the store. Who wants more of the past asks the store.
	historyBytes = 2 << 20
	// framesKept is the number of events that still carry their encodings for watchers that lag a little.
	framesKept = 64
)

func (h *history) add(ev *Event) {
	ev.at = time.Now()
	h.events = append(h.events, ev)
	h.bytes += ev.size
	if n := len(h.events) - framesKept; n > 0 {
		h.events[n-1].forget()
	}
	drop := 0
	for drop < len(h.events)-historyMin && (len(h.events)-drop > historyMax || h.bytes > historyBytes || ev.at.Sub(h.events[drop].at) > historyAge) {
		h.bytes -= h.events[drop].size
		drop++
	}
	// Events of one revision stay together, so that the floor is never in their midst.
	for drop > 0 && drop < len(h.events) && h.events[drop].Rev == h.events[drop-1].Rev {
		drop--
		h.bytes += h.events[drop].size
	}
	if drop == 0 {
		return
	}
	h.floor = h.events[drop-1].Rev
	clear(h.events[:drop])
	rest := h.events[drop:]
	if drop > len(rest) {
		// Most of the memory is in front of what is left. Otherwise it goes when the next events need more.
		rest = append(make([]*Event, 0, 2*len(rest)), rest...)
	}
	h.events = rest
}

// after returns the events after a revision; ok is false when some of them are no longer kept.
func (h *history) after(rev int64) (events []*Event, ok bool) {
	if rev < h.floor {
		return nil, false
	}
	lo, hi := 0, len(h.events)
	for lo < hi {
		if mid := (lo + hi) / 2; h.events[mid].Rev <= rev {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return h.events[lo:], true
}
