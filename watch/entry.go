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
	// held is the object, or a *packed one.
	held kind.Object
	size int // in the store
}

// NewEntry makes an entry of an object that is not in a cache.
func NewEntry(key string, object kind.Object, rev int64) *Entry {
	return &Entry{Key: key, held: object, Rev: rev}
}

// Object is the whole object. It is decoded first if the cache holds objects of its resource encoded, so whoever looks at many and needs only
// what is in outlines asks for these.
func (e *Entry) Object() kind.Object {
	if p, ok := e.held.(*packed); ok {
		return p.whole(e)
	}
	return e.held
}

// Outline is the object without its large parts, if its resource has such; otherwise it is the whole object. It costs nothing.
func (e *Entry) Outline() kind.Object {
	if p, ok := e.held.(*packed); ok {
		return p.Object
	}
	return e.held
}

// packed is an object that is held encoded beside its outline, which is the embedded Object. Only this package sees one.
type packed struct {
	kind.Object
	value []byte // as stored
	cache *Cache
	// lent is the decoded object as long as the garbage collector has not come by, so that those who follow a change decode it once. Who
	// has the object keeps it; nobody keeps the box that it is lent in.
	lent weak.Pointer[box]
}

// box carries an object for a weak pointer, which cannot point to an interface.
type box struct{ object kind.Object }

// whole decodes the object of an entry.
func (p *packed) whole(e *Entry) kind.Object {
	if b := p.lent.Value(); b != nil {
		return b.object
	}
	obj, err := p.cache.Decode(kv.Pair{Key: e.Key, Value: p.value, Rev: e.Rev})
	if err != nil { // these bytes could be decoded when the entry was made
		p.cache.Log.Error("a stored object cannot be decoded any more; only its outline is served", "key", e.Key, "err", err)
		return p.Object
	}
	return obj
}

// hold makes the entry of a pair and its object. The value is copied where it is kept, because it may be a part of something larger.
func (c *Cache) hold(p kv.Pair, obj kind.Object) *Entry {
	e := &Entry{Key: p.Key, held: obj, Rev: p.Rev, size: len(p.Value)}
	if c.Outline != nil {
		e.held = &packed{Object: c.Outline(obj), value: bytes.Clone(p.Value), cache: c, lent: weak.Make(&box{obj})}
	}
	return e
}

// ended is the entry of the last state of an object with the revision of its end.
func (e *Entry) ended(rev int64) *Entry {
	out := &Entry{Key: e.Key, Rev: rev}
	if p, ok := e.held.(*packed); ok {
		out.held = &packed{Object: ending(p.Object, rev), value: p.value, cache: p.cache}
	} else {
		out.held = ending(e.held, rev)
	}
	return out
}

// ending is the last state of an object with the revision of its end.
func ending(last kind.Object, rev int64) kind.Object {
	o := last.DeepCopyObject().(kind.Object)
	o.SetResourceVersion(strconv.FormatInt(rev, 10))
	return o
}
