package server

import (
	"bytes"
	"sync"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"proa.dev/kinds/kind"
)

// encodings keeps the JSON of custom objects that were in a list of late: an object is the same in all lists, and to write
// it out, a map of maps in the order of its keys, takes a hundred times as long as to copy what was written.
//
// It has two generations. When the younger one is full, or a minute old, it becomes the older one, and what was in that and has not been listed since
// is forgotten. So what it holds is bounded, and it holds nothing when nobody lists. Objects themselves are not held.
type encodings struct {
	limit int // bytes of a generation

	mu         sync.RWMutex // guards what follows
	young, old map[encodingOf]encoding
	size       int         // of the young
	aging      *time.Timer // nil when nothing is held
}

// encodingOf is what an encoding is found by.
type encodingOf struct {
	def *kind.Def // of the version that is shown
	key string    // in the store
}

type encoding struct {
	// of is the object in the cache. One that has changed is another one, and so is the same that was read again because its definition has.
	of   weak.Pointer[unstructured.Unstructured]
	text []byte
}

const (
	// generation is how long a generation is the younger one.
	generation = time.Minute
	// encodingCost is about what an encoding takes beside its text.
	encodingCost = 160
)

func newEncodings(limit int) *encodings { return &encodings{limit: limit} }

// get finds the encoding of an object of the cache. It is read-only.
func (e *encodings) get(def *kind.Def, key string, o *unstructured.Unstructured) ([]byte, bool) {
	at := encodingOf{def, key}
	e.mu.RLock()
	found, ok := e.young[at]
	young := ok
	if !ok {
		found, ok = e.old[at]
	}
	e.mu.RUnlock()
	if !ok || found.of.Value() != o {
		return nil, false
	}
	if !young {
		e.keep(at, found)
	}
	return found.text, true
}

// put keeps a copy of the encoding of an object of the cache.
func (e *encodings) put(def *kind.Def, key string, o *unstructured.Unstructured, text []byte) {
	if len(text) > e.limit/16 {
		return
	}
	e.keep(encodingOf{def, key}, encoding{weak.Make(o), bytes.Clone(text)})
}

// keep puts an encoding into the young generation.
func (e *encodings) keep(at encodingOf, it encoding) {
	cost := len(it.text) + len(at.key) + encodingCost
	e.mu.Lock()
	defer e.mu.Unlock()
	if before, found := e.young[at]; found {
		e.size -= len(before.text) + len(at.key) + encodingCost
	}
	if e.size+cost > e.limit {
		e.age()
	}
	if e.young == nil {
		e.young = map[encodingOf]encoding{}
	}
	e.young[at] = it
	e.size += cost
	if e.aging == nil {
		e.aging = time.AfterFunc(generation, e.tick)
	}
}

// age makes the young generation the old one.
func (e *encodings) age() { e.old, e.young, e.size = e.young, nil, 0 }

// tick ages what is held, until nothing is.
func (e *encodings) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.age()
	if e.old == nil {
		e.aging = nil
		return
	}
	e.aging.Reset(generation)
}

// encoded finds what was written of an object of the cache in an earlier list.
func (e *encoder) encoded(key string, stored kind.Object) ([]byte, bool) {
	u, custom := stored.(*unstructured.Unstructured)
	if !custom || e.kept == nil || e.f.shape != whole || e.f.forNodes {
		return nil, false
	}
	return e.kept.get(e.def, key, u)
}

// keep keeps what was written of an object of the cache.
func (e *encoder) keep(key string, stored kind.Object, text []byte) {
	if u, custom := stored.(*unstructured.Unstructured); custom && e.kept != nil && e.f.shape == whole && !e.f.forNodes {
		e.kept.put(e.def, key, u, text)
	}
}
