package hop

import (
	"hash/maphash"
	"iter"
)

// history is a list of records in the order in which they were added, bounded in number and in bytes. The records of one key
// are a list too, so that they are found quickly and can make room for each other.
//
// Records live in slots, and links between them are the numbers of slots, counted from 1; 0 is none. The links are apart from
// the records, and keys are hashes: whoever adds a record touches no other one, which would seldom be in the processor's cache.
type history struct {
	limit, maxBytes int
	// share and shareBytes are how many records and bytes one key may have. When the shares are soft, they count only once the history
	// is full: until then one key may have all of it.
	share, shareBytes int
	isSoft            bool

	records      []Record
	links        []link
	free         int32 // the first slot without a record; next links to another one
	oldest, last int32
	count, bytes int
	seed         maphash.Seed
	keys         map[uint64]chain // by the hash of the key: see historyKey
}

// link is where a record is in the lists.
type link struct {
	key          uint64
	size         int32
	before, next int32 // in the order of all records
	older, newer int32 // among the records of the key
}

// chain is the list of the records of one key.
type chain struct{ oldest, newest, count, bytes int32 }

// historyKey identifies whose records make room for each other: those of an object, by its UID or else its name, or those of
// a user: what was refused to him, and what a node reports of its work.
func (r *Record) historyKey() string {
	switch {
	case r.Refused != 0, r.isOfNode():
		return r.User
	case r.UID != "":
		return string(r.UID)
	}
	return r.Namespace + "/" + r.Name
}

// newHistory returns an empty history.
func newHistory(limit, share int) history {
	return history{limit: limit, share: share, maxBytes: limit * bytesPerRecord, shareBytes: share * bytesPerRecord,
		seed: maphash.MakeSeed(), keys: map[uint64]chain{}}
}

// add adds a record; older records make room.
func (h *history) add(rec *Record) {
	key, size := maphash.String(h.seed, rec.historyKey()), rec.size()
	c := h.makeRoom(key, 1, size)
	i := h.take()
	h.records[i-1] = *rec
	l := h.at(i)
	*l = link{key: key, size: int32(size), before: h.last, older: c.newest} //nolint:gosec // a record is small
	if h.last != 0 {
		h.at(h.last).next = i
	} else {
		h.oldest = i
	}
	h.last = i
	if c.newest != 0 {
		h.at(c.newest).newer = i
	} else {
		c.oldest = i
	}
	h.keys[key] = chain{c.oldest, i, c.count + 1, c.bytes + int32(size)} //nolint:gosec // a record is small
	h.count++
	h.bytes += size
}

// replace puts a record in the place of another one of the same key.
func (h *history) replace(at int32, rec *Record) {
	l, size := &h.links[at], rec.size()
	more := size - int(l.size)
	h.bytes += more
	h.records[at], l.size = *rec, int32(size) //nolint:gosec // a record is small
	c := h.keys[l.key]
	c.bytes += int32(more) //nolint:gosec // a record is small
	h.keys[l.key] = c
	h.makeRoom(l.key, 0, 0)
}

// makeRoom removes records until there is room for more of a key, in the history and in the share of the key: the oldest of the key when
// it has more than its share, and else the oldest of all. It returns the list of the key.
func (h *history) makeRoom(key uint64, records, bytes int) chain {
	c := h.keys[key]
	for {
		isFull := h.count > 0 && (h.count+records > h.limit || h.bytes+bytes > h.maxBytes)
		isOver := c.count > 0 && (int(c.count)+records > h.share || int(c.bytes)+bytes > h.shareBytes)
		victim := h.oldest
		switch {
		case isOver && (isFull || !h.isSoft):
			victim = c.oldest
		case !isFull:
			return c
		}
		isOwn := h.at(victim).key == key
		if h.remove(victim); isOwn {
			c = h.keys[key]
		}
	}
}

func (h *history) at(i int32) *link { return &h.links[i-1] }

// take returns a slot without a record.
func (h *history) take() int32 {
	if i := h.free; i != 0 {
		h.free = h.at(i).next
		return i
	}
	n := len(h.records)
	if n == cap(h.records) { // append would make it larger than the limit
		size := min(max(32, 2*n), h.limit)
		records, links := make([]Record, n, size), make([]link, n, size)
		copy(records, h.records)
		copy(links, h.links)
		h.records, h.links = records, links
	}
	h.records, h.links = h.records[:n+1], h.links[:n+1]
	return int32(n + 1) //nolint:gosec // a setting bounds the number of records far below this
}

// remove removes the record of a slot.
func (h *history) remove(i int32) {
	l := h.at(i)
	if l.before != 0 {
		h.at(l.before).next = l.next
	} else {
		h.oldest = l.next
	}
	if l.next != 0 {
		h.at(l.next).before = l.before
	} else {
		h.last = l.before
	}
	c := h.keys[l.key]
	c.bytes -= l.size
	if c.count--; l.older != 0 {
		h.at(l.older).newer = l.newer
	} else {
		c.oldest = l.newer
	}
	if l.newer != 0 {
		h.at(l.newer).older = l.older
	} else {
		c.newest = l.older
	}
	if c.count == 0 {
		delete(h.keys, l.key)
	} else {
		h.keys[l.key] = c
	}
	h.count--
	h.bytes -= int(l.size)
	*l = link{next: h.free}
	h.records[i-1] = Record{}
	h.free = i
}

// all yields the records with their indexes, the oldest first.
func (h *history) all() iter.Seq2[int32, *Record] {
	return func(yield func(int32, *Record) bool) {
		for i := h.oldest; i != 0; i = h.at(i).next {
			if !yield(i-1, &h.records[i-1]) {
				return
			}
		}
	}
}

// of yields the records of a key with their indexes, the newest first.
func (h *history) of(key string) iter.Seq2[int32, *Record] {
	return func(yield func(int32, *Record) bool) {
		for i := h.keys[maphash.String(h.seed, key)].newest; i != 0; i = h.at(i).older {
			if rec := &h.records[i-1]; rec.historyKey() == key && !yield(i-1, rec) {
				return
			}
		}
	}
}
