package hop

import (
	"hash/maphash"
	"iter"
	"math/bits"
)

// history is a list of records in the order in which they were added, bounded in number and in bytes. Its records are in groups
// too, such as those of one object or of one namespace, so that they are found quickly and make room for each other.
//
// Records live in slots, and links between them are the numbers of slots, counted from 1; 0 is none. The links are apart from
// the records, and groups are found by hashes: whoever adds a record touches no other one, which would seldom be in the processor's
// cache.
type history struct {
	limit, maxBytes int
	// groupings are at most maxGroupings. Records are found by the first one. The last one is by where something happens, and those between
	// by who does it.
	groupings []grouping

	records      []Record
	links        []link
	free         int32 // the first slot without a record; next links to another one
	oldest, last int32
	count, bytes int
	seed         maphash.Seed
	// clients is the history in which the client is found who led to a record; nil for this one. It has as many lists of clients, and the
	// same seed.
	clients *history
}

// maxGroupings is how many groups a record is in at most.
const maxGroupings = 4

// grouping divides the records of a history into groups: those with the same key.
type grouping struct {
	groupBy
	// share and shareBytes are how many records and bytes one group may have. The shares of all groupings but the first one count only once
	// the history is full: until then one group may have all of it.
	share, shareBytes int
	// large is the list that had more than a share when a record was last added to such a list.
	large uint32
	// lists has the groups by the hash of the key. The few groups that have the same one are in one list, and have one share.
	lists []groupList
}

// groupList is the list of the records of one group.
type groupList struct{ oldest, newest, count, bytes int32 }

// link is where a record is in the lists.
type link struct {
	size         int32
	object       uint32 // a hash of the object that tells it from others in the same list
	before, next int32  // in the order of all records
	in           [maxGroupings]groupLink
}

// groupLink is where a record is in the list of one of its groups.
type groupLink struct {
	list         uint32 // the index of the list
	older, newer int32
}

// groupBy says which records are in one group.
type groupBy uint8

const (
	// byObject groups records by their object: its UID, or else its name.
	byObject groupBy = iota
	// byNamespace groups records by the namespace of their object. Objects without a namespace are a group too.
	byNamespace
	// byUser groups records by who has made the request or done the work.
	byUser
	// byClient groups records by the client whose request led to them. What a part of this process or a node has done belongs to the
	// client who has the newest record of the object that caused it, so that nobody gets more room by the work of controllers and nodes.
	byClient
)

// userKey returns under which name a record counts for its user. Controllers in this process have service accounts too, each for itself.
func (r *Record) userKey() string {
	if r.Origin == nil {
		return r.User
	}
	return ClientKey(r.User)
}

// key returns what the records of one group have in common.
func (by groupBy) key(r *Record) string {
	switch {
	case by == byUser || by == byClient:
		return r.userKey()
	case by == byNamespace:
		return r.Namespace
	case r.UID != "":
		return string(r.UID)
	}
	return r.Namespace + "/" + r.Name
}

// newGrouping returns a grouping with lists for about so many groups.
func newGrouping(by groupBy, share, groups int) grouping {
	return grouping{groupBy: by, share: share, shareBytes: share * bytesPerRecord, lists: make([]groupList, 1<<bits.Len(uint(groups)))}
}

// newHistory returns an empty history.
func newHistory(limit int, seed maphash.Seed, groupings ...grouping) history {
	return history{limit: limit, maxBytes: limit * bytesPerRecord, groupings: groupings, seed: seed}
}

// listOf returns the index of the list that has the records with a key.
func (h *history) listOf(g *grouping, key string) uint32 {
	return g.listAt(maphash.String(h.seed, key))
}

// listAt returns the index of the list that has the records whose key has a hash.
func (g *grouping) listAt(hash uint64) uint32 { return uint32(hash) & uint32(len(g.lists)-1) }

// groupsOf sets the lists that a record belongs into.
func (h *history) groupsOf(l *link, rec *Record) {
	object := maphash.String(h.seed, h.groupings[0].key(rec))
	l.object, l.in[0].list = uint32(object>>32), h.groupings[0].listAt(object)
	for i := 1; i < len(h.groupings); i++ {
		g := &h.groupings[i]
		if g.groupBy == byClient && (rec.Origin == nil || rec.isByNode()) {
			if list, known := h.clientOf(rec, object); known {
				l.in[i].list = list
				continue
			}
		}
		l.in[i].list = h.listOf(g, g.key(rec))
	}
}

// clientGrouping is the grouping by clients of a history in which others find them.
const clientGrouping = 2

// clientOf returns the list of the client who has the newest record of the object that caused a record, or else of the object itself,
// which has a hash.
func (h *history) clientOf(rec *Record, object uint64) (list uint32, known bool) {
	if h.clients != nil {
		h = h.clients
	}
	if rec.CauseUID != "" && rec.CauseUID != rec.UID {
		if list, known = h.clientOfObject(maphash.String(h.seed, string(rec.CauseUID))); known {
			return list, true
		}
	}
	return h.clientOfObject(object)
}

// clientOfObject returns the list of the client who has the newest record of the object that has a hash.
func (h *history) clientOfObject(object uint64) (list uint32, known bool) {
	newest := h.groupings[0].lists[h.groupings[0].listAt(object)].newest
	if newest == 0 || h.at(newest).object != uint32(object>>32) {
		return 0, false
	}
	return h.at(newest).in[clientGrouping].list, true
}

// add adds a record; older records make room.
func (h *history) add(rec *Record) {
	l := link{size: int32(rec.size())}
	h.groupsOf(&l, rec)
	h.makeRoom(&l, 1, l.size)
	i := h.take()
	h.records[i-1] = *rec
	if l.before = h.last; h.last != 0 {
		h.at(h.last).next = i
	} else {
		h.oldest = i
	}
	h.last = i
	for g := range h.groupings {
		in := &l.in[g]
		list := &h.groupings[g].lists[in.list]
		if in.older = list.newest; list.newest != 0 {
			h.at(list.newest).in[g].newer = i
		} else {
			list.oldest = i
		}
		list.newest = i
		list.count++
		list.bytes += l.size
		if g := &h.groupings[g]; g.exceeds(list, 0, 0) {
			g.large = in.list
		}
	}
	*h.at(i) = l
	h.count++
	h.bytes += int(l.size)
}

// replace puts a record in the place of another one of the same groups.
func (h *history) replace(at int32, rec *Record) {
	l, size := &h.links[at], int32(rec.size())
	h.bytes += int(size - l.size)
	for g := range h.groupings {
		h.groupings[g].lists[l.in[g].list].bytes += size - l.size
	}
	h.records[at], l.size = *rec, size
	in := *l // the record itself may have to go
	h.makeRoom(&in, 0, 0)
}

// makeRoom removes records until there is room for more in the groups that a link names, and in the whole history.
func (h *history) makeRoom(l *link, records, bytes int32) {
	for i := h.superfluous(l, records, bytes); i != 0; i = h.superfluous(l, records, bytes) {
		h.remove(i)
	}
}

// superfluous returns the record that has to go first; 0 when there is room. It is the oldest of the object if that has more than its
// share. In a history that is full it is the oldest of whoever has more than a share: who adds the record, or else somebody else, because
// there is no room for what others need. If nobody has, it is the oldest of a namespace that has, or else of all.
func (h *history) superfluous(l *link, records, bytes int32) int32 {
	g := &h.groupings[0]
	if own := &g.lists[l.in[0].list]; g.exceeds(own, records, bytes) {
		return own.oldest
	}
	if h.count == 0 || h.count+int(records) <= h.limit && h.bytes+int(bytes) <= h.maxBytes {
		return 0
	}
	last := len(h.groupings) - 1
	if i := h.oldestOfLarge(l, 1, last); i != 0 {
		return i
	}
	if i := h.oldestOfLarge(l, max(last, 1), last+1); i != 0 {
		return i
	}
	return h.oldest
}

// oldestOfLarge returns the oldest record of a group that has more than its share, in some of the groupings: of one that the new record is
// in, or else of one that was large before. It returns 0 if there is none. A group with all records, such as that of the only node, does
// not tell who has too much.
func (h *history) oldestOfLarge(l *link, from, to int) int32 {
	for i := from; i < to; i++ {
		g := &h.groupings[i]
		if own := &g.lists[l.in[i].list]; g.exceeds(own, 1, 0) && int(own.count) < h.count {
			return own.oldest
		}
	}
	for i := from; i < to; i++ {
		g := &h.groupings[i]
		if large := &g.lists[g.large]; g.exceeds(large, 0, 0) && int(large.count) < h.count {
			return large.oldest
		}
	}
	return 0
}

// exceeds reports whether a list with more records and bytes has more than its share.
func (g *grouping) exceeds(list *groupList, records, bytes int32) bool {
	return list.count > 0 && (int(list.count+records) > g.share || int(list.bytes+bytes) > g.shareBytes)
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
	return int32(n + 1)
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
	for g := range h.groupings {
		in := &l.in[g]
		list := &h.groupings[g].lists[in.list]
		if in.older != 0 {
			h.at(in.older).in[g].newer = in.newer
		} else {
			list.oldest = in.newer
		}
		if in.newer != 0 {
			h.at(in.newer).in[g].older = in.older
		} else {
			list.newest = in.older
		}
		list.count--
		list.bytes -= l.size
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

// of yields the records of a group of the first grouping with their indexes, the newest first.
func (h *history) of(key string) iter.Seq2[int32, *Record] {
	return func(yield func(int32, *Record) bool) {
		g := &h.groupings[0]
		for i := g.lists[h.listOf(g, key)].newest; i != 0; i = h.at(i).in[0].older {
			if rec := &h.records[i-1]; g.key(rec) == key && !yield(i-1, rec) {
				return
			}
		}
	}
}
