package watch

import (
	"sync"
	"sync/atomic"
	"time"

	"proa.dev/kinds/kind"
)

// Type is the type of an event.
type Type uint8

// The types of events.
const (
	Added Type = iota + 1
	Modified
	Deleted
	Bookmark
)

// String returns the type as watch responses have it.
func (t Type) String() string {
	return [...]string{"", "ADDED", "MODIFIED", "DELETED", "BOOKMARK"}[t]
}

// Event is one change of one object. It is shared by all watchers and read-only.
type Event struct {
	Type Type
	Rev  int64
	// Now is the object after the change; for Deleted, its last state with the revision of the deletion.
	Now *Entry
	// Prev is the object before the change; nil if it did not exist.
	Prev *Entry

	// unreadable is why the object after the change cannot be decoded. Such an event is not sent to watchers.
	unreadable error

	at                             time.Time
	size                           int    // bytes of its objects in the store
	indexValue, previousIndexValue string // values of Config.Index

	// frames has the encodings of the event. It is read without lock; under mu it is replaced by a changed copy.
	frames    atomic.Pointer[[]frame]
	mu        sync.Mutex // guards changes of frames, and gone
	withdrawn *Entry     // Prev with the revision of the event, for watchers whose selection the object leaves
}

// states returns the outlines of the object before and after the change; nil if it did not exist or no longer exists.
func (e *Event) states() (old, now kind.Object) {
	if e.Prev != nil {
		old = e.Prev.Outline()
	}
	if e.Type != Deleted {
		now = e.Now.Outline()
	}
	return old, now
}

// frame is an encoding of an event.
type frame struct {
	kind  Type
	coder any
	bytes []byte
}

// Encoded returns the event as type as, encoded by encode. The result is kept, so that an event is encoded once for all
// watchers with the same type and coder; coder must be comparable and identify the encoding.
func (e *Event) Encoded(as Type, coder any, encode func(Type, kind.Object) ([]byte, error)) ([]byte, error) {
	if b, ok := e.encoded(as, coder); ok {
		return b, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if b, ok := e.encoded(as, coder); ok {
		return b, nil
	}
	b, err := encode(as, e.object(as))
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

// encoded returns an encoding that was made before.
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

// Object returns the object of the event for a watcher that sees it as type as: if the object leaves the watcher's
// selection, its previous state with the revision of the change.
func (e *Event) Object(as Type) kind.Object {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.object(as)
}

func (e *Event) object(as Type) kind.Object {
	if as != Deleted || e.Type == Deleted {
		return e.Now.Object()
	}
	if e.withdrawn == nil {
		e.withdrawn = e.Prev.deletedAt(e.Rev)
	}
	return e.withdrawn.Object()
}

// dropEncodings frees the encodings. A watcher that still needs one encodes the event again.
func (e *Event) dropEncodings() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.frames.Store(nil)
	e.withdrawn = nil
}

// history has the recent events, oldest first, for watchers that start at a past revision.
type history struct {
	events []*Event
	bytes  int // bytes of the objects of the events in the store
	// floor is the revision after which all events are in the history.
	floor int64
}

// The history keeps events for historyAge, between historyMin and historyMax of them, and about historyBytes.
const (
	historyAge = 5 * time.Minute
	historyMax = 16384
	historyMin = 256
	// An object takes about four times as much memory as in the store. Watchers that start before the history read from
	// the store.
	historyBytes = 2 << 20
	// framesKept is the number of recent events that keep their encodings, for watchers that lag a little.
	framesKept = 64
)

func (h *history) add(ev *Event) {
	ev.at = time.Now()
	h.events = append(h.events, ev)
	h.bytes += ev.size
	if n := len(h.events) - framesKept; n > 0 {
		h.events[n-1].dropEncodings()
	}
	drop := 0
	for drop < len(h.events)-historyMin &&
		(len(h.events)-drop > historyMax || h.bytes > historyBytes || ev.at.Sub(h.events[drop].at) > historyAge) {
		h.bytes -= h.events[drop].size
		drop++
	}
	// Events of one revision are dropped together, because the floor is a revision.
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
		// Most of the array is unused now. Otherwise it is freed when append allocates a larger one.
		rest = append(make([]*Event, 0, 2*len(rest)), rest...)
	}
	h.events = rest
}

// after returns the events after a revision; ok is false if some of them were dropped.
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
