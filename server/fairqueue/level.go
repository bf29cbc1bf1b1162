package fairqueue

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apimachinery/pkg/types"
)

// level is a priority level. The lock of the sharing guards it.
type level struct {
	name    string
	uid     types.UID
	exempt  bool
	deleted bool // its configuration was deleted
	bounds

	running    int              // seats that are taken
	taken      map[flowName]int // the same by flow
	waiting    int              // requests in all queues
	queueList  []*queue
	openQueues int     // how many of the queues accept new requests
	handSize   int     // how many of those a flow may use
	queueLimit int     // how many requests a queue holds; 0 for no queues at all
	clock      float64 // the virtual time up to which queues have been served
	arrivals   uint64  // number of requests that were queued so far
}

// queue is a queue of requests of a level.
type queue struct {
	level   *level
	waiting []*waiter
	served  float64 // seat-seconds that it has used, in the virtual time of its level
}

// flowName identifies a flow. Requests of a flow share queues.
type flowName struct{ schema, flow string }

// waiter is a request that waits, or has waited.
type waiter struct {
	called chan struct{} // closed when it may run; nil when it did not have to wait
	schema *schema
	flow   flowName
	queue  *queue // nil when it did not have to wait
	width  int    // 0 for an exempt request
	number uint64 // in the order of arrival
}

// estimatedDuration is the assumed minimal duration of a request. It decides the order of requests that start together.
const estimatedDuration = 3 * time.Millisecond

// set applies a configuration.
func (l *level) set(config *flowcontrolv1.PriorityLevelConfiguration, b bounds) {
	l.uid, l.bounds, l.deleted = config.UID, b, false
	l.exempt = config.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	l.openQueues, l.handSize, l.queueLimit = 0, 0, 0
	if limited := config.Spec.Limited; limited != nil && limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue &&
		limited.LimitResponse.Queuing != nil {
		q := limited.LimitResponse.Queuing
		l.openQueues, l.handSize, l.queueLimit = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
	}
	for len(l.queueList) < l.openQueues {
		l.queueList = append(l.queueList, &queue{level: l})
	}
	// Queues beyond the configured number are kept as long as requests wait in them.
	for len(l.queueList) > l.openQueues && len(l.queueList[len(l.queueList)-1].waiting) == 0 {
		l.queueList = l.queueList[:len(l.queueList)-1]
	}
}

// reservedSeats returns the seats that other levels may not take.
func (l *level) reservedSeats() int { return max(l.running, l.lower) }

func (l *level) isBusy() bool { return l.running > 0 || l.waiting > 0 }

func (l *level) hasQueues() bool { return l.openQueues > 0 && l.queueLimit > 0 }

// limitWidth limits the seats of one request, so that a large one does not block all others of its level.
func (l *level) limitWidth(width int) int {
	most := max(1, (l.nominal*15+99)/100)
	if l.handSize > 0 {
		most = max(1, min(most, l.nominal/l.handSize))
	}
	return max(1, min(width, most))
}

// isBefore reports whether a level is served before another one: it uses less of its share.
func (l *level) isBefore(o *level) bool {
	a, b := l.running*max(1, o.nominal), o.running*max(1, l.nominal)
	return a < b || a == b && l.name < o.name
}

// spareSeats returns how many seats the large flows of the level leave to small ones.
func (l *level) spareSeats() int { return l.nominal / 8 }

// isLarge reports whether a flow has so many seats that it must leave some to the others.
func (l *level) isLarge(f flowName) bool { return l.taken[f] > l.spareSeats() }

// addSeats adds to the seats of a flow.
func (l *level) addSeats(f flowName, seats int) {
	if l.taken == nil {
		l.taken = map[flowName]int{}
	}
	if l.taken[f] += seats; l.taken[f] == 0 {
		delete(l.taken, f)
	}
}

// mayBypassQueues reports whether a request need not wait behind others: there are none, or all of them belong to large
// flows and it does not.
func (l *level) mayBypassQueues(w *waiter) bool {
	if l.waiting == 0 {
		return true
	}
	return !l.isLarge(w.flow) && !slices.ContainsFunc(l.queueList,
		func(q *queue) bool { return len(q.waiting) > 0 && !l.isLarge(q.waiting[0].flow) })
}

// enqueue puts a request into the shortest of the queues of its flow, unless that is full.
func (l *level) enqueue(w *waiter) bool {
	var best *queue
	for _, i := range shuffleShard(hash(w.flow.schema, w.flow.flow), l.openQueues, l.handSize) {
		if q := l.queueList[i]; best == nil || len(q.waiting) < len(best.waiting) {
			best = q
		}
	}
	if best == nil || len(best.waiting) >= l.queueLimit {
		return false
	}
	if len(best.waiting) == 0 {
		best.served = max(best.served, l.clock) // an idle queue gathers no credit
	}
	l.arrivals++
	w.called, w.queue, w.number = make(chan struct{}), best, l.arrivals
	best.waiting = append(best.waiting, w)
	l.waiting++
	w.schema.counters.waiting.Add(1)
	return true
}

// dequeue lets the first request of a queue run.
func (l *level) dequeue(q *queue) *waiter {
	w := q.waiting[0]
	l.clock = max(l.clock, q.served)
	q.served += float64(w.width) * estimatedDuration.Seconds()
	q.removeAt(0)
	close(w.called)
	return w
}

// correct adds the time that a request has taken beyond the estimate.
func (q *queue) correct(width int, took time.Duration) {
	q.served += float64(width) * max(0, took-estimatedDuration).Seconds()
}

// drop removes a request that waits no longer, and reports whether it was still queued.
func (q *queue) drop(w *waiter) bool {
	at := slices.Index(q.waiting, w)
	if at < 0 {
		return false
	}
	q.removeAt(at)
	return true
}

func (q *queue) removeAt(at int) {
	q.waiting[at].schema.counters.waiting.Add(-1)
	q.waiting = slices.Delete(q.waiting, at, at+1)
	q.level.waiting--
}

// hash returns a number for a flow.
func hash(schema, flow string) uint64 {
	sum := sha256.Sum256([]byte(schema + "\x00" + flow))
	return binary.LittleEndian.Uint64(sum[:])
}

// shuffleShard picks the queues of a flow: hand different ones of n, always the same for the same flow. Two flows
// rarely share all of their queues, so that a flood of one rarely delays another.
func shuffleShard(flow uint64, n, hand int) []int {
	hand = min(hand, n)
	if hand < 1 {
		return nil
	}
	cards := make([]int, n)
	for i := range cards {
		cards[i] = i
	}
	for i := range hand {
		left := uint64(n - i)
		at := i + int(flow%left)
		flow /= left
		cards[i], cards[at] = cards[at], cards[i]
	}
	return cards[:hand]
}
