package watch

import (
	"bytes"
	"strconv"
	"weak"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// Entry is one object in the cache.
type Entry struct {
	Key string
	Rev int64
	// held is the object itself, or a *packed.
	held kind.Object
	size int // in the store
}

// NewEntry returns an entry for an object that does not come from a cache.
func NewEntry(key string, object kind.Object, rev int64) *Entry {
	return &Entry{Key: key, held: object, Rev: rev}
}

// Object returns the whole object. If the cache keeps objects of the resource encoded, the object is decoded first;
// callers that look at many objects should use Outline if that is enough.
func (e *Entry) Object() kind.Object {
	if p, ok := e.held.(*encodedObject); ok {
		return p.whole(e)
	}
	return e.held
}

// Size returns how many bytes the object has in the store; 0 if it does not come from there.
func (e *Entry) Size() int { return e.size }

// Outline returns the object without its large parts if the cache keeps outlines, otherwise the whole object. It never
// decodes.
func (e *Entry) Outline() kind.Object {
	if p, ok := e.held.(*encodedObject); ok {
		return p.Object
	}
	return e.held
}

// encodedObject is an object that is kept encoded, together with its outline, which is the embedded Object. It never
// leaves this package.
type encodedObject struct {
	kind.Object
	value []byte // as stored
	cache *Cache
	// decoded is the decoded object until the next garbage collection, so that the watchers of a change decode it once.
	// It is a weak pointer: it does not keep the object in memory.
	decoded weak.Pointer[objectBox]
}

// objectBox holds an object for a weak pointer, which cannot point to an interface value.
type objectBox struct{ object kind.Object }

// whole decodes the object of an entry.
func (p *encodedObject) whole(e *Entry) kind.Object {
	if b := p.decoded.Value(); b != nil {
		return b.object
	}
	obj, err := p.cache.Decode(kv.Pair{Key: e.Key, Value: p.value, Rev: e.Rev})
	if err != nil { // unexpected: the same bytes were decoded when the entry was made
		p.cache.Log.Error("a stored object cannot be decoded any more; only its outline is served", "key", e.Key, "err", err)
		return p.Object
	}
	return obj
}

// newEntry returns the entry of a pair with its decoded object. If the value is kept, it is copied, because it may be
// part of a larger buffer.
func (c *Cache) newEntry(p kv.Pair, obj kind.Object) *Entry {
	e := &Entry{Key: p.Key, held: obj, Rev: p.Rev, size: len(p.Value)}
	if c.Outline != nil {
		e.held = &encodedObject{Object: c.Outline(obj), value: bytes.Clone(p.Value), cache: c, decoded: weak.Make(&objectBox{obj})}
	}
	return e
}

// deletedAt returns an entry with the last state of a deleted object and the revision of its deletion.
func (e *Entry) deletedAt(rev int64) *Entry {
	out := &Entry{Key: e.Key, Rev: rev}
	if p, ok := e.held.(*encodedObject); ok {
		out.held = &encodedObject{Object: withRevision(p.Object, rev), value: p.value, cache: p.cache}
	} else {
		out.held = withRevision(e.held, rev)
	}
	return out
}

// withRevision returns a copy of the last state of a deleted object, with the revision of its deletion.
func withRevision(last kind.Object, rev int64) kind.Object {
	o := last.DeepCopyObject().(kind.Object)
	o.SetResourceVersion(strconv.FormatInt(rev, 10))
	return o
}
