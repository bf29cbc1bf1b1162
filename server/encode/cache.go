package encode

import (
	"bytes"
	"sync"
	"time"
	"weak"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"proa.dev/kinds/kind"
)

// Cache keeps the JSON of custom objects that were listed recently. An object has the same JSON in all lists, and
// encoding it, a map of maps in the order of its keys, takes a hundred times as long as copying what was encoded
// before.
//
// It has two generations. When the younger one is full, or a minute old, it becomes the older one, and entries of the
// older one that have not been used since are dropped. So its size is bounded, and it is empty when nobody lists. The
// objects themselves are not held.
type Cache struct {
	limit int // of the bytes of a generation

	mu         sync.RWMutex // guards what follows
	young, old map[cacheKey]cacheEntry
	size       int         // of the young generation
	aging      *time.Timer // nil when the cache is empty
}

// cacheKey is what an encoding is found by: an object in one of its versions.
type cacheKey struct {
	def *kind.Def // of the version that was encoded
	key string    // of the object in the store
}

// cacheEntry is the encoding of an object.
type cacheEntry struct {
	// of is the object that was encoded. A changed object is another pointer, and so is one that was decoded again
	// because its definition has changed.
	of   weak.Pointer[unstructured.Unstructured]
	text []byte
}

const (
	// generation is for how long a generation is the younger one.
	generation = time.Minute
	// entryOverhead is about how many bytes an entry takes besides its text.
	entryOverhead = 160
)

// NewCache returns a cache of two generations of this many bytes each.
func NewCache(limit int) *Cache { return &Cache{limit: limit} }

// get finds the encoding of an object. The text is read-only.
func (c *Cache) get(def *kind.Def, key string, o *unstructured.Unstructured) ([]byte, bool) {
	at := cacheKey{def, key}
	c.mu.RLock()
	found, ok := c.young[at]
	young := ok
	if !ok {
		found, ok = c.old[at]
	}
	c.mu.RUnlock()
	if !ok || found.of.Value() != o {
		return nil, false
	}
	if !young {
		c.keep(at, found)
	}
	return found.text, true
}

// put keeps a copy of the encoding of an object.
func (c *Cache) put(def *kind.Def, key string, o *unstructured.Unstructured, text []byte) {
	if len(text) > c.limit/16 {
		return
	}
	c.keep(cacheKey{def, key}, cacheEntry{weak.Make(o), bytes.Clone(text)})
}

// keep puts an entry into the young generation.
func (c *Cache) keep(at cacheKey, it cacheEntry) {
	cost := len(it.text) + len(at.key) + entryOverhead
	c.mu.Lock()
	defer c.mu.Unlock()
	if before, found := c.young[at]; found {
		c.size -= len(before.text) + len(at.key) + entryOverhead
	}
	if c.size+cost > c.limit {
		c.age()
	}
	if c.young == nil {
		c.young = map[cacheKey]cacheEntry{}
	}
	c.young[at] = it
	c.size += cost
	if c.aging == nil {
		c.aging = time.AfterFunc(generation, c.ageByTime)
	}
}

// age makes the young generation the old one.
func (c *Cache) age() { c.old, c.young, c.size = c.young, nil, 0 }

// ageByTime ages the cache once in a while until it is empty.
func (c *Cache) ageByTime() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.age()
	if c.old == nil {
		c.aging = nil
		return
	}
	c.aging.Reset(generation)
}

// cached finds the encoding of a stored custom object from an earlier list.
func (e *Encoder) cached(key string, stored kind.Object) ([]byte, bool) {
	u, custom := stored.(*unstructured.Unstructured)
	if !custom || e.Cache == nil || e.Format.Shape != Whole || e.Format.ForNodes {
		return nil, false
	}
	return e.Cache.get(e.Def, key, u)
}

// cacheEncoding keeps the encoding of a stored custom object.
func (e *Encoder) cacheEncoding(key string, stored kind.Object, text []byte) {
	if u, custom := stored.(*unstructured.Unstructured); custom && e.Cache != nil && e.Format.Shape == Whole && !e.Format.ForNodes {
		e.Cache.put(e.Def, key, u, text)
	}
}
