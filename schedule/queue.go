package schedule

import (
	"container/heap"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Queue holds the pods that want a node. A pod is in one place: active, when it is to be tried; backing off, when it was
// tried not long ago; parked, when a plugin rejected it and nothing has changed that could help; or flying, while it is
// being tried. The queue has no clock and no goroutine: who uses it says what time it is, and one goroutine at a time may.
type Queue struct {
	settings QueueSettings
	gates    map[string][]Plugin // of each profile
	wakes    map[Resource][]wake

	entries  map[types.UID]*Entry
	active   entryHeap
	waiting  entryHeap                       // backing off after a rejection
	failing  entryHeap                       // backing off after an error
	parked   map[string]map[types.UID]*Entry // by the plugin that rejected them; an entry may be under several
	flying   int
	log      []happening // what happened while pods were flying
	seq      uint64      // the number of the last of log
	incoming map[arrival]uint64
	flush    time.Time // when to look for entries that are parked for too long
}

// QueueSettings are the times of a queue.
type QueueSettings struct {
	FirstBackoff, LastBackoff time.Duration
	// LongestPark is how long a pod is parked at most.
	LongestPark time.Duration
}

// longestLog is how much is remembered for pods in flight. One for which something was forgotten is tried again.
const longestLog = 16384

// flushEvery is how often the queue looks for pods that are parked for too long.
const flushEvery = 30 * time.Second

// arrival is a place in the queue that pods came to, and why, in upstream's words.
type arrival struct{ queue, why string }

const attemptFailed = "ScheduleAttemptFailure"

// Entry is a pod in the queue.
type Entry struct {
	Pod      *PodInfo
	Attempts int
	// Added is when it came into the queue, or came back; First when it was tried for the first time.
	Added, First time.Time
	// Flushed says that it was tried again only because it had been parked for so long.
	Flushed bool

	rejections, errors int
	by, pending        sets.Set[string]
	gate               string // the plugin that keeps it out
	until              time.Time
	place              place
	at                 int // in its heap
	seen               uint64
	shaped             *PodInfo // whose shape is shapeText
	shapeText          string
}

type place uint8

const (
	nowhere place = iota
	inActive
	inWaiting
	inFailing
	inParked
	inFlight
)

// NewQueue makes a queue for the pods of some profiles.
func NewQueue(settings QueueSettings, profiles []Profile) *Queue {
	q := &Queue{
		settings: settings, gates: map[string][]Plugin{}, wakes: map[Resource][]wake{},
		entries: map[types.UID]*Entry{}, parked: map[string]map[types.UID]*Entry{}, incoming: map[arrival]uint64{},
		active: entryHeap{less: moreUrgent}, waiting: entryHeap{less: sooner},
		failing: entryHeap{less: func(a, b *Entry) bool { return a.until.Before(b.until) }},
	}
	for _, p := range profiles {
		for _, pl := range p.Plugins {
			if pl.Gate != nil {
				q.gates[p.Name] = append(q.gates[p.Name], pl)
			}
			for _, w := range pl.Wakes {
				q.wakes[w.On] = append(q.wakes[w.On], wake{p.Name, pl.Name, w})
			}
		}
	}
	return q
}

// moreUrgent is the order of the active pods: important first, then who waits longer.
func moreUrgent(a, b *Entry) bool {
	if p, q := a.Pod.Priority(), b.Pod.Priority(); p != q {
		return p > q
	}
	return a.Added.Before(b.Added)
}

// sooner is the order of pods that back off. Those that end within the same second go by urgency.
func sooner(a, b *Entry) bool {
	x, y := a.until.Truncate(time.Second), b.until.Truncate(time.Second)
	if !x.Equal(y) {
		return x.Before(y)
	}
	return moreUrgent(a, b)
}

// Add puts a new pod into the queue, or tells the queue of a new state of one.
func (q *Queue) Add(p *PodInfo, now time.Time) {
	if e := q.entries[p.Pod.UID]; e != nil {
		q.update(e, p, now)
		return
	}
	e := &Entry{Pod: p, Added: now}
	q.entries[p.Pod.UID] = e
	q.enqueue(e, now, false, "UnscheduledPodAdd")
}

func (q *Queue) update(e *Entry, p *PodInfo, now time.Time) {
	was := e.Pod
	e.Pod = p
	h := happening{on: TargetPod, do: podChange(was, p), was: was.Pod, is: p.Pod, about: p.Pod.UID}
	switch e.place {
	case inActive:
		heap.Fix(&q.active, e.at)
	case inWaiting:
		heap.Fix(&q.waiting, e.at)
	case inFailing:
		heap.Fix(&q.failing, e.at)
	case inFlight:
		q.note(h)
	case inParked:
		q.consider(e, &h, now)
	case nowhere:
	}
}

// Remove takes a pod out of the queue.
func (q *Queue) Remove(uid types.UID) {
	e := q.entries[uid]
	if e == nil {
		return
	}
	q.leave(e)
	delete(q.entries, uid)
}

// Get is the entry of a pod, or nil.
func (q *Queue) Get(uid types.UID) *Entry { return q.entries[uid] }

// leave takes an entry out of the place where it is.
func (q *Queue) leave(e *Entry) {
	switch e.place {
	case inActive:
		heap.Remove(&q.active, e.at)
	case inWaiting:
		heap.Remove(&q.waiting, e.at)
	case inFailing:
		heap.Remove(&q.failing, e.at)
	case inParked:
		for plugin := range e.rejectors() {
			delete(q.parked[plugin], e.Pod.Pod.UID)
		}
	case inFlight:
		q.land()
	case nowhere:
	}
	e.place = nowhere
}

func (q *Queue) land() {
	if q.flying--; q.flying == 0 {
		q.log = q.log[:0]
	}
}

// enqueue puts an entry where it is tried, now or after its back-off, unless a gate is closed.
func (q *Queue) enqueue(e *Entry, now time.Time, backoff bool, why string) {
	q.leave(e)
	e.gate = ""
	for _, pl := range q.gates[e.Pod.Pod.Spec.SchedulerName] {
		if v := pl.Gate(e.Pod.Pod); v != nil {
			e.gate = pl.Name
			e.by, e.pending = sets.New(pl.Name), nil
			q.park(e, why)
			return
		}
	}
	e.until = e.Added.Add(q.backoff(e))
	switch {
	case !backoff || !e.until.After(now):
		e.place = inActive
		heap.Push(&q.active, e)
		q.incoming[arrival{"active", why}]++
		return
	case len(e.rejectors()) == 0:
		e.place = inFailing
		heap.Push(&q.failing, e)
	default:
		e.place = inWaiting
		heap.Push(&q.waiting, e)
	}
	q.incoming[arrival{"backoff", why}]++
}

// backoff is how long a pod waits after its last attempt.
func (q *Queue) backoff(e *Entry) time.Duration {
	n := e.rejections
	if e.errors > 0 {
		n = e.errors
	}
	if n == 0 || q.settings.LastBackoff == 0 {
		return 0
	}
	if n > 30 {
		return q.settings.LastBackoff
	}
	return min(q.settings.FirstBackoff<<(n-1), q.settings.LastBackoff)
}

func (q *Queue) park(e *Entry, why string) {
	e.place = inParked
	q.incoming[arrival{"unschedulable", why}]++
	for plugin := range e.rejectors() {
		if q.parked[plugin] == nil {
			q.parked[plugin] = map[types.UID]*Entry{}
		}
		q.parked[plugin][e.Pod.Pod.UID] = e
	}
}

func (e *Entry) rejectors() sets.Set[string] {
	if len(e.pending) == 0 {
		return e.by
	}
	return e.by.Union(e.pending)
}

// Pop takes the next pod to try. If there is none it returns nil, and how long nothing will change by itself.
func (q *Queue) Pop(now time.Time) (*Entry, time.Duration) {
	q.tick(now)
	e := q.next()
	if e == nil {
		wait := max(q.flush.Sub(now), time.Millisecond)
		if len(q.failing.list) > 0 {
			wait = min(wait, max(q.failing.list[0].until.Sub(now), time.Millisecond))
		}
		return nil, wait
	}
	e.place, e.seen = inFlight, q.seq
	q.flying++
	e.Attempts++
	if e.First.IsZero() {
		e.First = now
	}
	return e, 0
}

// next is the most urgent active pod. When there is none, the scheduler has time, and a pod that backs off after a rejection
// need not wait longer; one that met an error must.
func (q *Queue) next() *Entry {
	if len(q.active.list) > 0 {
		return heap.Pop(&q.active).(*Entry)
	}
	if len(q.waiting.list) > 0 {
		return heap.Pop(&q.waiting).(*Entry)
	}
	return nil
}

// tick moves what time moves.
func (q *Queue) tick(now time.Time) {
	for len(q.waiting.list) > 0 && !q.waiting.list[0].until.Truncate(time.Second).After(now) {
		q.enqueue(q.waiting.list[0], now, false, "BackoffComplete")
	}
	for len(q.failing.list) > 0 && !q.failing.list[0].until.After(now) {
		q.enqueue(q.failing.list[0], now, false, "BackoffComplete")
	}
	if now.Before(q.flush) {
		return
	}
	if q.flush = now.Add(flushEvery); q.settings.LongestPark <= 0 {
		return
	}
	for _, e := range q.parkedEntries() {
		if e.gate == "" && now.Sub(e.Added) > q.settings.LongestPark {
			e.Flushed = true
			q.enqueue(e, now, true, "UnschedulableTimeout")
		}
	}
}

func (q *Queue) parkedEntries() []*Entry {
	all := map[types.UID]*Entry{}
	for _, entries := range q.parked {
		maps.Copy(all, entries)
	}
	out := make([]*Entry, 0, len(all))
	for _, e := range all {
		out = append(out, e)
	}
	return out
}

// Done says that a pod in flight has its node, so that it is no longer of interest.
func (q *Queue) Done(uid types.UID) { q.Remove(uid) }

// Fail brings a pod in flight back. by and pending are the plugins that rejected it; if both are empty it met an error. What
// happened since it was taken counts.
func (q *Queue) Fail(e *Entry, by, pending sets.Set[string], now time.Time) {
	if q.entries[e.Pod.Pod.UID] != e || e.place != inFlight {
		return
	}
	verdict := stay
	since := q.log
	if missed := q.seq - e.seen; missed <= uint64(len(q.log)) {
		since = q.log[uint64(len(q.log))-missed:]
	} else {
		verdict = later
	}
	e.by, e.pending, e.Flushed, e.Added = by, pending, false, now
	if len(by)+len(pending) == 0 {
		e.errors++
		q.enqueue(e, now, true, attemptFailed)
		return
	}
	e.rejections++
	e.errors = 0
	for i := range since {
		verdict = max(verdict, q.worth(e, &since[i]))
	}
	q.leave(e)
	switch verdict {
	case stay:
		q.park(e, attemptFailed)
	case later:
		q.enqueue(e, now, true, attemptFailed)
	case atOnce:
		q.enqueue(e, now, false, attemptFailed)
	}
}

// Back brings a pod back that had its node, and could not be bound to it. It waits as after an error.
func (q *Queue) Back(e *Entry, now time.Time) {
	uid := e.Pod.Pod.UID
	if q.entries[uid] != nil {
		return
	}
	q.entries[uid] = e
	e.by, e.pending, e.Flushed, e.Added = nil, nil, false, now
	e.errors++
	q.enqueue(e, now, true, attemptFailed)
}

// Activate brings a pod that waits, for whatever reason, to be tried now.
func (q *Queue) Activate(uid types.UID, now time.Time) {
	if e := q.entries[uid]; e != nil && e.place != inFlight && e.place != inActive {
		q.enqueue(e, now, false, "ForceActivate")
	}
}

// Counts are the numbers of pods by place, in upstream's words.
func (q *Queue) Counts() map[string]int {
	out := map[string]int{"active": len(q.active.list), "backoff": len(q.waiting.list) + len(q.failing.list), "unschedulable": 0, "gated": 0}
	for _, e := range q.parkedEntries() {
		if e.gate != "" {
			out["gated"]++
		} else {
			out["unschedulable"]++
		}
	}
	return out
}

// rejected are the numbers of parked pods by plugin and profile.
func (q *Queue) rejected() map[[2]string]int {
	out := map[[2]string]int{}
	for plugin, entries := range q.parked {
		for _, e := range entries {
			if e.gate == "" {
				out[[2]string{plugin, e.Pod.Pod.Spec.SchedulerName}]++
			}
		}
	}
	return out
}
