package hop

import (
	"cmp"
	"hash/maphash"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// bytesPerRecord is how many bytes of memory the records of a Recorder may take on average.
	bytesPerRecord = 1400
	// minShare is how many records one object or user may have at least, however small the Recorder is.
	minShare = 64
	// shareLists is how many namespaces, users and clients have shares of their own at most.
	shareLists = 1 << 10
	// spareRecords is for how many records there is room besides those that were counted before they are copied.
	spareRecords = 16
)

// Recorder keeps the latest records in memory. Its size is bounded in number and in bytes, and the oldest records make room
// for new ones. There are four histories, so that no flood pushes out what people look for: writes that happen all the
// time by themselves, such as renewals of Leases, have one, refused writes have another, the work that nodes report a third, and
// all other records the main one. Of one object, and of the refused writes of one user, only a share of the records is kept. Of one
// namespace, of one user or node, and of what one client did and caused, only a share is kept when there is no room for that of others.
//
// All methods do nothing on a nil Recorder, which stands for one that is switched off.
type Recorder struct {
	// Process is set in records that name no process.
	Process string
	// NoBodies says that bodies of requests are not kept.
	NoBodies  bool
	following following
	details   details

	mu        sync.Mutex // guards what follows
	durations [Count + 1]Durations
	main      history
	steady    history
	failed    history
	nodes     history
	bodies    bodies
	changes   uint64 // see Changes
}

// NewRecorder returns a recorder that keeps at most limit records, and some of the routine and refused writes and of the work
// of nodes besides. With a limit of 0 it returns nil.
func NewRecorder(limit int) *Recorder {
	if limit <= 0 {
		return nil
	}
	few, work, seed := max(1, limit/16), max(minShare, limit/4), maphash.MakeSeed()
	byWhere := func(size int) grouping { return newGrouping(byNamespace, max(minShare, size/4), shareLists) }
	byCause := func(size int) grouping { return newGrouping(byClient, max(minShare, size/4), shareLists) }
	byWho := func(share int) grouping { return newGrouping(byUser, max(minShare, share), shareLists) }
	r := &Recorder{
		main: newHistory(limit, seed, newGrouping(byObject, max(minShare, limit/32), limit), byWho(limit/2), byCause(limit),
			byWhere(limit)),
		steady: newHistory(few, seed, newGrouping(byObject, minShare, few), byCause(few), byWhere(few)),
		failed: newHistory(2*few, seed, newGrouping(byUser, max(minShare, few/4), 2*few)),
		nodes:  newHistory(work, seed, newGrouping(byObject, work, work), byWho(work/2), byCause(work), byWhere(work)),
	}
	r.steady.clients, r.nodes.clients = &r.main, &r.main
	return r
}

// Add adds a record; the oldest ones make room for it.
func (r *Recorder) Add(rec Record) {
	if r == nil {
		return
	}
	r.tell(&rec)
	r.add(&rec, true)
}

// Restore is Add for a record that was observed before, such as one that was stored before a restart.
func (r *Recorder) Restore(rec Record) {
	if r != nil {
		r.add(&rec, false)
	}
}

func (r *Recorder) add(rec *Record, isNew bool) {
	if rec.Bound(); rec.Process == "" {
		rec.Process = r.Process
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if isNew {
		r.observe(rec)
	}
	h := r.historyOf(rec)
	r.countChange(h)
	h.add(rec)
}

// countChange counts a change of the records of a history, unless that is of writes that happen all the time. The caller holds mu.
func (r *Recorder) countChange(h *history) {
	if h != &r.steady {
		r.changes++
	}
}

// Changes returns how many records were added or replaced so far, without those that happen all the time by themselves, such as renewals
// of Leases. As long as it stays the same, so do all other records.
func (r *Recorder) Changes() uint64 {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changes
}

// observe counts the times of a record that has ended, without those for which a client kept the event of a write waiting: they say
// nothing about the server. The caller holds mu.
func (r *Recorder) observe(rec *Record) {
	if rec.Open {
		return
	}
	for h := Client; h <= Network; h++ {
		d := rec.Took[h]
		if h == Watch {
			d -= rec.Wait[h]
		}
		if d > 0 {
			r.durations[h].observe(d)
		}
	}
}

// Durations returns the distribution of the times at a hop of all records that were added; see observe for what is left out.
func (r *Recorder) Durations(h Hop) *Durations {
	d := &Durations{}
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		*d = r.durations[h]
	}
	return d
}

// historyOf returns the history that a record belongs to.
func (r *Recorder) historyOf(rec *Record) *history {
	switch {
	case rec.Refused != 0:
		return &r.failed
	case rec.isRoutine():
		return &r.steady
	case rec.isOfNode():
		return &r.nodes
	}
	return &r.main
}

// isOfNode reports whether a record is of the work of a node, which the node says itself.
func (r *Record) isOfNode() bool { return r.isByNode() && !r.IsWrite() }

// isByNode reports whether a node has made the request or done the work.
func (r *Record) isByNode() bool { return strings.HasPrefix(r.User, "system:node:") }

// isRoutine reports whether a write is one of those that every cluster makes all the time without being asked.
func (r *Record) isRoutine() bool {
	return r.IsWrite() && isRoutine(r.Group, r.Resource, r.Subresource)
}

func isRoutine(group, resource, subresource string) bool {
	switch resource {
	case "leases":
		return group == "coordination.k8s.io"
	case "events":
		return group == "" || group == "events.k8s.io"
	case "nodes":
		return group == "" && subresource == "status"
	}
	return false
}

// Update replaces the open record of the same work: that with the same UID, revision, verb, user and start. Without one it
// adds the record.
func (r *Recorder) Update(rec Record) {
	if r == nil {
		return
	}
	r.tell(&rec)
	if rec.Bound(); rec.Process == "" {
		rec.Process = r.Process
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observe(&rec)
	h := r.historyOf(&rec)
	r.countChange(h)
	for i, have := range h.of(h.groupings[0].key(&rec)) {
		if have.isSameWork(&rec) && have.Open {
			h.replace(i, &rec)
			return
		}
	}
	h.add(&rec)
}

// isSameWork reports whether two records are of the same work. Those of an object without a UID are told apart by its name.
func (r *Record) isSameWork(o *Record) bool {
	return r.Rev == o.Rev && r.Verb == o.Verb && r.Start.Equal(o.Start) && r.UID == o.UID && r.User == o.User &&
		(r.UID != "" || r.Namespace == o.Namespace && r.Name == o.Name)
}

// Select returns copies of the records that a predicate chooses, sorted by their start. The predicate must be quick and must
// not keep the record; it may be asked more than once about the same one.
func (r *Recorder) Select(choose func(*Record) bool) []Record {
	if r == nil {
		return nil
	}
	out := r.choose(choose)
	slices.SortStableFunc(out, func(a, b Record) int { return a.Start.Compare(b.Start) })
	return out
}

// choose copies the records that a predicate chooses. Every write takes the lock, so no memory is allocated while it is held: the
// records are counted first, and again when so many more have come in between that the copies do not fit.
func (r *Recorder) choose(choose func(*Record) bool) []Record {
	for size := 0; ; {
		out := make([]Record, 0, size)
		n := r.copyInto(&out, choose)
		if n <= size {
			return out
		}
		size = n + n/8 + spareRecords
	}
}

// copyInto appends copies of the records that a predicate chooses, as long as there is room, and returns how many it chooses.
func (r *Recorder) copyInto(out *[]Record, choose func(*Record) bool) (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range [...]*history{&r.main, &r.steady, &r.failed, &r.nodes} {
		for _, rec := range h.all() {
			if !choose(rec) {
				continue
			}
			if n++; len(*out) < cap(*out) {
				*out = append(*out, *rec)
			}
		}
	}
	return n
}

// Of returns the records of one object, sorted by revision; they need not have been added in that order. Refused writes
// have no revision and come first.
func (r *Recorder) Of(uid types.UID) []Record {
	if r == nil {
		return nil
	}
	out := r.ofObject(uid)
	slices.SortStableFunc(out, func(a, b Record) int { return cmp.Or(cmp.Compare(a.Rev, b.Rev), a.Start.Compare(b.Start)) })
	return out
}

func (r *Recorder) ofObject(uid types.UID) (out []Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range []*history{&r.main, &r.steady, &r.nodes} {
		for _, rec := range h.of(string(uid)) {
			out = append(out, *rec)
		}
	}
	slices.Reverse(out)                  // the oldest first
	for _, rec := range r.failed.all() { // it has lists of users
		if rec.UID == uid {
			out = append(out, *rec)
		}
	}
	return out
}

// Committed returns when a write was committed, if it is recorded: the end of its last hop.
func (r *Recorder) Committed(uid types.UID, rev int64) (at time.Time, known bool) {
	if r == nil {
		return time.Time{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range []*history{&r.main, &r.steady} {
		for _, rec := range h.of(string(uid)) {
			if rec.Rev == rev && rec.IsWrite() {
				return rec.End(), true
			}
		}
	}
	return time.Time{}, false
}

// Len returns the number of records.
func (r *Recorder) Len() int {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.main.count + r.steady.count + r.failed.count + r.nodes.count
}
