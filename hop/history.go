package hop

import "iter"

// history is a list of records in the order in which they were added, bounded in number and in bytes. The records of one key
// are a list too, so that they are found quickly and can make room for each other. Records live in slots, and links between
// them are the numbers of slots, counted from 1; 0 is none.
type history struct {
	limit, share, maxBytes int

	slots        []slot
	free         int32 // the first slot without a record; next links to another one
	oldest, last int32
	count, bytes int
	keys         map[string]chain // see historyKey
}

// slot is the place of one record.
type slot struct {
	rec          Record
	size         int
	before, next int32 // in the order of all records
	older, newer int32 // among the records of the key
}

// chain is the list of the records of one key.
type chain struct{ oldest, newest, count int32 }

// historyKey identifies whose records make room for each other: those of an object, by its UID or else its name, or those of
// a user.
func (r *Record) historyKey() string {
	switch {
	case r.Refused != 0:
		return r.User
	case r.UID != "":
		return string(r.UID)
	}
	return r.Namespace + "/" + r.Name
}

// add adds a record; older records make room.
func (h *history) add(rec *Record) {
	key, size := rec.historyKey(), rec.size()
	if h.count >= h.limit {
		h.remove(h.oldest)
	}
	h.shrink(size)
	c := h.keys[key]
	if int(c.count) >= h.share {
		h.remove(c.oldest)
		c = h.keys[key]
	}
	i := h.take()
	s := h.at(i)
	s.rec, s.size = *rec, size
	s.before, s.next = h.last, 0
	if h.last != 0 {
		h.at(h.last).next = i
	} else {
		h.oldest = i
	}
	h.last = i
	s.older, s.newer = c.newest, 0
	if c.newest != 0 {
		h.at(c.newest).newer = i
	} else {
		c.oldest = i
	}
	h.keys[key] = chain{c.oldest, i, c.count + 1}
	h.count++
	h.bytes += size
}

// shrink removes the oldest records until there is room for more bytes.
func (h *history) shrink(more int) {
	for h.count > 0 && h.bytes+more > h.maxBytes {
		h.remove(h.oldest)
	}
}

func (h *history) at(i int32) *slot { return &h.slots[i-1] }

// take returns a slot without a record.
func (h *history) take() int32 {
	if i := h.free; i != 0 {
		h.free = h.at(i).next
		return i
	}
	if len(h.slots) == cap(h.slots) { // append would make it larger than the limit
		grown := make([]slot, len(h.slots), min(max(32, 2*len(h.slots)), h.limit))
		copy(grown, h.slots)
		h.slots = grown
	}
	h.slots = h.slots[:len(h.slots)+1]
	return int32(len(h.slots)) //nolint:gosec // a setting bounds the number of records far below this
}

// remove removes the record of a slot.
func (h *history) remove(i int32) {
	s := h.at(i)
	if s.before != 0 {
		h.at(s.before).next = s.next
	} else {
		h.oldest = s.next
	}
	if s.next != 0 {
		h.at(s.next).before = s.before
	} else {
		h.last = s.before
	}
	key := s.rec.historyKey()
	c := h.keys[key]
	if c.count--; s.older != 0 {
		h.at(s.older).newer = s.newer
	} else {
		c.oldest = s.newer
	}
	if s.newer != 0 {
		h.at(s.newer).older = s.older
	} else {
		c.newest = s.older
	}
	if c.count == 0 {
		delete(h.keys, key)
	} else {
		h.keys[key] = c
	}
	h.count--
	h.bytes -= s.size
	*s = slot{next: h.free}
	h.free = i
}

// all yields the indexes of the records in slots, the oldest first.
func (h *history) all() iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i := h.oldest; i != 0; i = h.at(i).next {
			if !yield(i - 1) {
				return
			}
		}
	}
}

// of yields the indexes of the records of a key in slots, the newest first.
func (h *history) of(key string) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		for i := h.keys[key].newest; i != 0; i = h.at(i).older {
			if !yield(i - 1) {
				return
			}
		}
	}
}
