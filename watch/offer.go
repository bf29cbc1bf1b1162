package watch

import (
	"bytes"
	"strconv"
	"sync"

	"proa.dev/kinds/kind"
	"proa.dev/kv"
)

// maxOffers bounds the number of open offers. Further offers are ignored, and their changes are decoded.
const maxOffers = 1024

// Offer is a decoded object that its writer is about to store, with the encoded bytes. When the watch delivers the
// change, the cache uses the object instead of decoding the same bytes again.
//
// An offer does not change the order of changes: it has no effect until the watch delivers a change with the same key
// and bytes, and it is used for one revision only. The cache or the writer, whichever is first, sets the revision of
// the object; from then on the object is shared and read-only.
type Offer struct {
	cache *Cache
	key   string
	value []byte

	mu     sync.Mutex // guards what follows
	object kind.Object
	rev    int64 // 0 until it is set
}

// NewOffer offers the object of a value to a cache, which is nil if it has not been started. The caller must not change
// the object afterwards.
func NewOffer(c *Cache, key string, value []byte, object kind.Object) *Offer {
	o := &Offer{cache: c, key: key, value: value, object: object}
	if c != nil {
		c.offers.put(o)
	}
	return o
}

// At returns the object with the revision at which its writer has stored it. It returns false if the cache has used the
// object for a change with the same bytes at another revision.
func (o *Offer) At(rev int64) (kind.Object, bool) {
	if o.cache != nil && o.cache.rev.Load() >= rev {
		o.Withdraw() // the cache has already applied the change
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

// Withdraw removes an offer whose object was not stored.
func (o *Offer) Withdraw() {
	if o.cache != nil {
		o.cache.offers.drop(o)
	}
}

// offers has the latest unused offer of each key.
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

// take returns the object that was offered for a pair, with the revision of the pair, and removes the offer.
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
