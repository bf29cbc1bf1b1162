package watch

import (
	"bytes"
	"strconv"
	"sync"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// maxOffers bounds the objects that wait for their change. Beyond it changes are decoded as if nobody had offered anything.
const maxOffers = 1024

// Offer is an object that somebody is about to store, decoded from the very bytes that are stored. When the change comes back
// from the store, the cache takes the object instead of decoding those bytes once more.
//
// The order of changes is still that of the store's watch alone: an offer means nothing until a change with its key and its
// bytes arrives, and it stands for one revision. Whoever comes first, the cache or the writer, gives the object that
// revision; from then on it is shared and read-only.
type Offer struct {
	cache *Cache
	key   string
	value []byte

	mu     sync.Mutex // guards what follows
	object kind.Object
	rev    int64 // 0 until the object has one
}

// NewOffer offers the object of a value to a cache; nil for one that has not been started. The object belongs to the
// offer from now on.
func NewOffer(c *Cache, key string, value []byte, object kind.Object) *Offer {
	o := &Offer{cache: c, key: key, value: value, object: object}
	if c != nil {
		c.offers.put(o)
	}
	return o
}

// At returns the object with the revision at which its writer has stored it. It is false when the cache has met the same
// bytes at another revision: then the object is that of the other change.
func (o *Offer) At(rev int64) (kind.Object, bool) {
	if o.cache != nil && o.cache.rev.Load() >= rev {
		o.Withdraw() // the cache has been there
	}
	return o.at(rev)
}

func (o *Offer) at(rev int64) (kind.Object, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.rev == 0 {
		o.rev = rev
		o.object.SetResourceVersion(strconv.FormatInt(rev, 10))
	}
	return o.object, o.rev == rev
}

// Withdraw ends an offer whose object was not stored.
func (o *Offer) Withdraw() {
	if o.cache != nil {
		o.cache.offers.drop(o)
	}
}

// offers are those that the cache has not taken yet, the latest of each key.
type offers struct {
	mu   sync.Mutex // guards open
	open map[string]*Offer
}

func (s *offers) put(o *Offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[string]*Offer{}
	}
	if len(s.open) < maxOffers {
		s.open[o.key] = o
	}
}

func (s *offers) drop(o *Offer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[o.key] == o {
		delete(s.open, o.key)
	}
}

// take finds the object of a pair that the store's watch has brought.
func (s *offers) take(p kv.Pair) (kind.Object, bool) {
	s.mu.Lock()
	o := s.open[p.Key]
	if o == nil || !bytes.Equal(o.value, p.Value) {
		s.mu.Unlock()
		return nil, false
	}
	delete(s.open, p.Key)
	s.mu.Unlock()
	return o.at(p.Rev)
}

func (s *offers) clear() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = nil
}
