// Package podqueue is the scheduling queue: the Pods that wait for a node, in the order in which they are tried, and
// the events that make it worthwhile to try a rejected Pod again.
package podqueue

import (
	"container/heap"
	"iter"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"proa.dev/schedule/framework"
)

// Queue has the Pods without a node. Each Pod is in one place: active, if it is to be tried; in back-off, if it was
// tried a short time ago; unschedulable, if a plugin has rejected it and no event has happened that could help; or in
// flight, while it is being tried. The queue has no clock and no goroutine: callers pass the time, and it is not safe
// for concurrent use.
type Queue struct {
	settings   Settings
	preEnqueue map[string][]framework.Plugin // plugins with PreEnqueue, by profile
	hints      map[framework.Resource][]pluginHint

	entries        map[types.UID]*Entry
	active         entryHeap
	backoff        entryHeap                       // in back-off after a rejection
	errorBackoff   entryHeap                       // in back-off after an error
	unschedulable  map[string]map[types.UID]*Entry // by rejecting plugin; an entry may be under several
	inFlight       int
	inFlightEvents []ClusterEvent // the events since the first Pod in flight was taken
	eventCount     uint64         // the number of events so far, including the last of inFlightEvents
	incoming       map[Arrival]uint64
	nextFlush      time.Time // when Pods are next checked for being unschedulable for too long
}

// Settings configure a queue.
type Settings struct {
	InitialBackoff, MaxBackoff time.Duration
	// MaxUnschedulable is how long a Pod stays unschedulable at most before it is tried again.
	MaxUnschedulable time.Duration
}

// maxInFlightEvents bounds the events that are kept for Pods in flight. A Pod for which an event was dropped is tried
// again.
const maxInFlightEvents = 16384

// flushInterval is the interval in which Pods are checked for being unschedulable for too long.
const flushInterval = 30 * time.Second

// Arrival is a part of the queue to which a Pod was added, and the event that caused it, with the names of upstream's
// metrics.
type Arrival struct{ Queue, Event string }

// attemptFailed is upstream's name for the event that a scheduling attempt has failed, backoffComplete for the end of a back-off.
const (
	attemptFailed   = "ScheduleAttemptFailure"
	backoffComplete = "BackoffComplete"
)

// Entry is a Pod in the queue.
type Entry struct {
	Pod      *framework.PodInfo
	Attempts int
	// EnqueuedAt is when the Pod was last added to the queue or returned to it, FirstAttempt when it was first tried.
	EnqueuedAt, FirstAttempt time.Time
	// Flushed reports that the Pod was tried again because it was unschedulable for a long time, not because of an
	// event.
	Flushed bool
	// EnqueuedBy is the event that made the queue try the Pod, with the names of upstream's metrics; QueuedRevision is the
	// resourceVersion of the write to the Pod that put it into the queue.
	EnqueuedBy, QueuedRevision string
	// SlowAttempts counts the last attempts that took too long, and MinBackoff is how long the Pod then waits at least after an error.
	SlowAttempts int
	MinBackoff   time.Duration

	rejections, errors         int
	rejectedBy, pendingPlugins sets.Set[string]
	gatedBy                    string // the PreEnqueue plugin that rejects the Pod
	backoffUntil               time.Time
	place                      place
	heapIndex                  int // in its heap
	seenEvents                 uint64
	signatureOf                *framework.PodInfo // the state that signature was computed for
	signature                  string
}

// place is the part of the queue that an entry is in.
type place uint8

const (
	nowhere place = iota
	inActive
	inBackoff
	inErrorBackoff
	inUnschedulable
	inFlight
)

// New returns a queue for the Pods of some profiles.
func New(settings Settings, profiles []framework.Profile) *Queue {
	q := &Queue{
		settings: settings, preEnqueue: map[string][]framework.Plugin{}, hints: map[framework.Resource][]pluginHint{},
		entries: map[types.UID]*Entry{}, unschedulable: map[string]map[types.UID]*Entry{}, incoming: map[Arrival]uint64{},
		active: entryHeap{less: isMoreUrgent}, backoff: entryHeap{less: endsBackoffSooner},
		errorBackoff: entryHeap{less: func(a, b *Entry) bool { return a.backoffUntil.Before(b.backoffUntil) }},
	}
	for _, p := range profiles {
		for _, pl := range p.Plugins {
			if pl.PreEnqueue != nil {
				q.preEnqueue[p.Name] = append(q.preEnqueue[p.Name], pl)
			}
			for _, w := range pl.QueueingHints {
				q.hints[w.On] = append(q.hints[w.On], pluginHint{p.Name, pl.Name, w})
			}
		}
	}
	return q
}

// isMoreUrgent is the order of the active Pods: by priority, then by the time they were enqueued.
func isMoreUrgent(a, b *Entry) bool {
	if p, q := a.Pod.Priority(), b.Pod.Priority(); p != q {
		return p > q
	}
	return a.EnqueuedAt.Before(b.EnqueuedAt)
}

// endsBackoffSooner is the order of the Pods in back-off. Pods whose back-off ends within the same second are ordered
// by urgency.
func endsBackoffSooner(a, b *Entry) bool {
	x, y := a.backoffUntil.Truncate(time.Second), b.backoffUntil.Truncate(time.Second)
	if !x.Equal(y) {
		return x.Before(y)
	}
	return isMoreUrgent(a, b)
}

// Add adds a Pod to the queue, or updates it.
func (q *Queue) Add(p *framework.PodInfo, now time.Time) {
	if e := q.entries[p.Pod.UID]; e != nil {
		q.update(e, p, now)
		return
	}
	e := &Entry{Pod: p, EnqueuedAt: now, QueuedRevision: p.Pod.ResourceVersion}
	q.entries[p.Pod.UID] = e
	q.enqueue(e, now, false, "UnscheduledPodAdd")
}

func (q *Queue) update(e *Entry, p *framework.PodInfo, now time.Time) {
	was := e.Pod
	e.Pod = p
	h := ClusterEvent{On: framework.TargetPod, Do: framework.ClassifyPodUpdate(was, p), Old: was.Pod, New: p.Pod, target: p.Pod.UID}
	switch e.place {
	case inActive:
		heap.Fix(&q.active, e.heapIndex)
	case inBackoff:
		heap.Fix(&q.backoff, e.heapIndex)
	case inErrorBackoff:
		heap.Fix(&q.errorBackoff, e.heapIndex)
	case inFlight:
		q.rememberInFlight(h)
	case inUnschedulable:
		if q.wakeIfHelpful(e, &h, now); e.place != inUnschedulable {
			e.QueuedRevision = p.Pod.ResourceVersion
		}
	case nowhere:
	}
}

// Remove removes a Pod from the queue.
func (q *Queue) Remove(uid types.UID) {
	e := q.entries[uid]
	if e == nil {
		return
	}
	q.removeFromPlace(e)
	delete(q.entries, uid)
}

// Get returns the entry of a Pod, or nil.
func (q *Queue) Get(uid types.UID) *Entry { return q.entries[uid] }

// removeFromPlace removes an entry from its place.
func (q *Queue) removeFromPlace(e *Entry) {
	switch e.place {
	case inActive:
		heap.Remove(&q.active, e.heapIndex)
	case inBackoff:
		heap.Remove(&q.backoff, e.heapIndex)
	case inErrorBackoff:
		heap.Remove(&q.errorBackoff, e.heapIndex)
	case inUnschedulable:
		for plugin := range e.rejectors() {
			delete(q.unschedulable[plugin], e.Pod.Pod.UID)
		}
	case inFlight:
		q.leaveFlight()
	case nowhere:
	}
	e.place = nowhere
}

func (q *Queue) leaveFlight() {
	if q.inFlight--; q.inFlight == 0 {
		q.inFlightEvents = q.inFlightEvents[:0]
	}
}

// enqueue makes an entry active, or puts it in back-off if that is requested and not over, unless a PreEnqueue plugin
// rejects the Pod.
func (q *Queue) enqueue(e *Entry, now time.Time, backoff bool, why string) {
	q.removeFromPlace(e)
	e.gatedBy = ""
	if why != backoffComplete {
		e.EnqueuedBy = why
	}
	for _, pl := range q.preEnqueue[e.Pod.Pod.Spec.SchedulerName] {
		if r := pl.PreEnqueue(e.Pod.Pod); r != nil {
			e.gatedBy = pl.Name
			e.rejectedBy, e.pendingPlugins = sets.New(pl.Name), nil
			q.park(e, why)
			return
		}
	}
	e.backoffUntil = e.EnqueuedAt.Add(q.backoffOf(e))
	switch {
	case !backoff || !e.backoffUntil.After(now):
		e.place = inActive
		heap.Push(&q.active, e)
		q.incoming[Arrival{"active", why}]++
		return
	case len(e.rejectors()) == 0:
		e.place = inErrorBackoff
		heap.Push(&q.errorBackoff, e)
	default:
		e.place = inBackoff
		heap.Push(&q.backoff, e)
	}
	q.incoming[Arrival{"backoff", why}]++
}

// backoffOf returns the back-off of a Pod after its last attempt.
func (q *Queue) backoffOf(e *Entry) time.Duration {
	if e.MinBackoff > 0 {
		return e.MinBackoff
	}
	n := e.rejections
	if e.errors > 0 {
		n = e.errors
	}
	if n == 0 || q.settings.MaxBackoff == 0 {
		return 0
	}
	if n > 30 {
		return q.settings.MaxBackoff
	}
	return min(q.settings.InitialBackoff<<(n-1), q.settings.MaxBackoff)
}

func (q *Queue) park(e *Entry, why string) {
	e.place = inUnschedulable
	q.incoming[Arrival{"unschedulable", why}]++
	for plugin := range e.rejectors() {
		if q.unschedulable[plugin] == nil {
			q.unschedulable[plugin] = map[types.UID]*Entry{}
		}
		q.unschedulable[plugin][e.Pod.Pod.UID] = e
	}
}

// GatedBy returns the PreEnqueue plugin that keeps the Pod from being tried; empty for none.
func (e *Entry) GatedBy() string { return e.gatedBy }

func (e *Entry) rejectors() sets.Set[string] {
	if len(e.pendingPlugins) == 0 {
		return e.rejectedBy
	}
	return e.rejectedBy.Union(e.pendingPlugins)
}

// Pop removes and returns the next Pod to try. If there is none it returns nil, and the time after which Pop should be
// called again.
func (q *Queue) Pop(now time.Time) (*Entry, time.Duration) {
	q.moveExpired(now)
	e := q.next()
	if e == nil {
		wait := max(q.nextFlush.Sub(now), time.Millisecond)
		if len(q.errorBackoff.list) > 0 {
			wait = min(wait, max(q.errorBackoff.list[0].backoffUntil.Sub(now), time.Millisecond))
		}
		return nil, wait
	}
	e.place, e.seenEvents = inFlight, q.eventCount
	q.inFlight++
	e.Attempts++
	if e.FirstAttempt.IsZero() {
		e.FirstAttempt = now
	}
	return e, 0
}

// next returns the most urgent active Pod. If there is none, it returns a Pod in back-off after a rejection, since the
// scheduler is idle; the back-off after an error is not shortened.
func (q *Queue) next() *Entry {
	if len(q.active.list) > 0 {
		return heap.Pop(&q.active).(*Entry)
	}
	if len(q.backoff.list) > 0 {
		return heap.Pop(&q.backoff).(*Entry)
	}
	return nil
}

// moveExpired makes Pods active whose back-off is over, and tries Pods again that were unschedulable for too long.
func (q *Queue) moveExpired(now time.Time) {
	for len(q.backoff.list) > 0 && !q.backoff.list[0].backoffUntil.Truncate(time.Second).After(now) {
		q.enqueue(q.backoff.list[0], now, false, backoffComplete)
	}
	for len(q.errorBackoff.list) > 0 && !q.errorBackoff.list[0].backoffUntil.After(now) {
		q.enqueue(q.errorBackoff.list[0], now, false, backoffComplete)
	}
	if now.Before(q.nextFlush) {
		return
	}
	if q.nextFlush = now.Add(flushInterval); q.settings.MaxUnschedulable <= 0 {
		return
	}
	for _, e := range q.unschedulableEntries() {
		if e.gatedBy == "" && now.Sub(e.EnqueuedAt) > q.settings.MaxUnschedulable {
			e.Flushed = true
			q.enqueue(e, now, true, "UnschedulableTimeout")
		}
	}
}

func (q *Queue) unschedulableEntries() []*Entry {
	all := map[types.UID]*Entry{}
	for _, entries := range q.unschedulable {
		maps.Copy(all, entries)
	}
	out := make([]*Entry, 0, len(all))
	for _, e := range all {
		out = append(out, e)
	}
	return out
}

// Done removes a Pod in flight that has a node.
func (q *Queue) Done(uid types.UID) { q.Remove(uid) }

// Fail returns a Pod in flight to the queue. by and pending are the plugins that rejected it; if both are empty, the
// attempt failed with an error. Events that happened while the Pod was in flight may make it active again.
func (q *Queue) Fail(e *Entry, by, pending sets.Set[string], now time.Time) {
	if q.entries[e.Pod.Pod.UID] != e || e.place != inFlight {
		return
	}
	action := skipPod
	since := q.inFlightEvents
	if missed := q.eventCount - e.seenEvents; missed <= uint64(len(q.inFlightEvents)) {
		since = q.inFlightEvents[uint64(len(q.inFlightEvents))-missed:]
	} else {
		action = queueAfterBackoff
	}
	e.rejectedBy, e.pendingPlugins, e.Flushed, e.EnqueuedAt = by, pending, false, now
	if len(by)+len(pending) == 0 {
		e.errors++
		q.enqueue(e, now, true, attemptFailed)
		return
	}
	e.rejections++
	e.errors = 0
	for i := range since {
		action = max(action, q.hint(e, &since[i]))
	}
	q.removeFromPlace(e)
	switch action {
	case skipPod:
		q.park(e, attemptFailed)
	case queueAfterBackoff:
		q.enqueue(e, now, true, attemptFailed)
	case queueNow:
		q.enqueue(e, now, false, attemptFailed)
	}
}

// ReturnUnbound returns a Pod to the queue that had a node but could not be bound to it. It gets the back-off of an
// error.
func (q *Queue) ReturnUnbound(e *Entry, now time.Time) {
	uid := e.Pod.Pod.UID
	if q.entries[uid] != nil {
		return
	}
	q.entries[uid] = e
	e.rejectedBy, e.pendingPlugins, e.Flushed, e.EnqueuedAt = nil, nil, false, now
	e.errors++
	q.enqueue(e, now, true, attemptFailed)
}

// Activate makes a Pod active that is in back-off or unschedulable.
func (q *Queue) Activate(uid types.UID, now time.Time) {
	if e := q.entries[uid]; e != nil && e.place != inFlight && e.place != inActive {
		q.enqueue(e, now, false, "ForceActivate")
	}
}

// Counts returns the number of Pods in each part of the queue, with the names of upstream's metrics.
func (q *Queue) Counts() map[string]int {
	out := map[string]int{"active": len(q.active.list), "backoff": len(q.backoff.list) + len(q.errorBackoff.list), "unschedulable": 0,
		"gated": 0}
	for _, e := range q.unschedulableEntries() {
		if e.gatedBy != "" {
			out["gated"]++
		} else {
			out["unschedulable"]++
		}
	}
	return out
}

// UnschedulableCounts returns the number of unschedulable Pods by rejecting plugin and profile.
func (q *Queue) UnschedulableCounts() map[[2]string]int {
	out := map[[2]string]int{}
	for plugin, entries := range q.unschedulable {
		for _, e := range entries {
			if e.gatedBy == "" {
				out[[2]string{plugin, e.Pod.Pod.Spec.SchedulerName}]++
			}
		}
	}
	return out
}

// SignatureOf returns the signature of a state of the Pod. It is computed once.
func (e *Entry) SignatureOf(p *framework.PodInfo) string {
	if e.signatureOf != p {
		e.signatureOf, e.signature = p, framework.Signature(p.Pod)
	}
	return e.signature
}

// All yields the entries of all Pods, including those in flight. Entries may be removed during the iteration.
func (q *Queue) All() iter.Seq[*Entry] { return maps.Values(q.entries) }

// Arrivals returns how many Pods were added to each part of the queue so far, by event.
func (q *Queue) Arrivals() map[Arrival]uint64 { return maps.Clone(q.incoming) }
