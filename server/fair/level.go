package fair

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
	name   string
	uid    types.UID
	exempt bool
	gone   bool // its configuration was deleted
	bounds

	running int              // seats that are taken
	taken   map[flowName]int // the same by flow
	waiting int              // requests in all lines
	lines   []*queue
	open    int     // how many of the lines take new requests
	hand    int     // how many of those a flow may use
	longest int     // how many requests a line holds; 0 for no lines at all
	clock   float64 // the virtual time up to which lines have been served
	arrived uint64  // requests that have come to wait so far
}

// queue is a line of requests of a level.
type queue struct {
	level   *level
	waiting []*waiter
	served  float64 // seat-seconds that it has had, in the virtual time of its level
}

// flowName is what requests have in common that share with each other and not with the rest of their level.
type flowName struct{ schema, flow string }

// waiter is a request that waits, or has.
type waiter struct {
	called chan struct{} // closed when it may run; nil when it did not have to wait
	schema *schema
	flow   flowName
	queue  *queue // nil when it did not have to wait
	width  int    // 0 for one that is exempt
	number uint64 // in the order of arrival
}

// guess is how long a request is thought to take at least: that settles the order of those that begin together.
const guess = 3 * time.Millisecond

// set takes over a configuration.
func (l *level) set(config *flowcontrolv1.PriorityLevelConfiguration, b bounds) {
	l.uid, l.bounds, l.gone = config.UID, b, false
	l.exempt = config.Spec.Type == flowcontrolv1.PriorityLevelEnablementExempt
	l.open, l.hand, l.longest = 0, 0, 0
	if limited := config.Spec.Limited; limited != nil && limited.LimitResponse.Type == flowcontrolv1.LimitResponseTypeQueue && limited.LimitResponse.Queuing != nil {
		q := limited.LimitResponse.Queuing
		l.open, l.hand, l.longest = int(q.Queues), int(q.HandSize), int(q.QueueLengthLimit)
	}
	for len(l.lines) < l.open {
		l.lines = append(l.lines, &queue{level: l})
	}
	// Lines that are too many are kept for those who wait in them.
	for len(l.lines) > l.open && len(l.lines[len(l.lines)-1].waiting) == 0 {
		l.lines = l.lines[:len(l.lines)-1]
	}
}

// holds are the seats that nobody else may take.
func (l *level) holds() int { return max(l.running, l.lower) }

func (l *level) busy() bool { return l.running > 0 || l.waiting > 0 }

func (l *level) queues() bool { return l.open > 0 && l.longest > 0 }

// clip bounds the seats of one request, so that a large one does not stop all others of its level.
func (l *level) clip(width int) int {
	most := max(1, (l.nominal*15+99)/100)
	if l.hand > 0 {
		most = max(1, min(most, l.nominal/l.hand))
	}
	return max(1, min(width, most))
}

// before says that a level is to be served before another one: it uses less of its share.
func (l *level) before(o *level) bool {
	a, b := l.running*max(1, o.nominal), o.running*max(1, l.nominal)
	return a < b || a == b && l.name < o.name
}

// spare is how many seats the large flows of the level leave to those who ask for little.
func (l *level) spare() int { return l.nominal / 8 }

// large says that a flow has so many seats that it must leave some to the others.
func (l *level) large(f flowName) bool { return l.taken[f] > l.spare() }

// count adds to the seats of a flow.
func (l *level) count(f flowName, seats int) {
	if l.taken == nil {
		l.taken = map[flowName]int{}
	}
	if l.taken[f] += seats; l.taken[f] == 0 {
		delete(l.taken, f)
	}
}

// mayPass says that a request need not wait behind others: there are none, or all of them belong to large flows and it does not.
func (l *level) mayPass(w *waiter) bool {
	if l.waiting == 0 {
		return true
	}
	return !l.large(w.flow) && !slices.ContainsFunc(l.lines, func(q *queue) bool { return len(q.waiting) > 0 && !l.large(q.waiting[0].flow) })
}

// join puts a request into the shortest of the lines of its flow, if that is not full.
func (l *level) join(w *waiter) bool {
	var best *queue
	for _, i := range deal(hash(w.flow.schema, w.flow.flow), l.open, l.hand) {
		if q := l.lines[i]; best == nil || len(q.waiting) < len(best.waiting) {
			best = q
		}
	}
	if best == nil || len(best.waiting) >= l.longest {
		return false
	}
	if len(best.waiting) == 0 {
		best.served = max(best.served, l.clock) // who did not ask has no credit
	}
	l.arrived++
	w.called, w.queue, w.number = make(chan struct{}), best, l.arrived
	best.waiting = append(best.waiting, w)
	l.waiting++
	w.schema.counters.waiting.Add(1)
	return true
}

// call lets the first request of a line run.
func (l *level) call(q *queue) *waiter {
	w := q.waiting[0]
	l.clock = max(l.clock, q.served)
	q.served += float64(w.width) * guess.Seconds()
	q.leave(0)
	close(w.called)
	return w
}

// correct adds what a request has taken longer than the guess.
func (q *queue) correct(width int, took time.Duration) {
	q.served += float64(width) * max(0, took-guess).Seconds()
}

// drop takes a request out that waits no longer, and says whether it was still there.
func (q *queue) drop(w *waiter) bool {
	at := slices.Index(q.waiting, w)
	if at < 0 {
		return false
	}
	q.leave(at)
	return true
}

func (q *queue) leave(at int) {
	q.waiting[at].schema.counters.waiting.Add(-1)
	q.waiting = slices.Delete(q.waiting, at, at+1)
	q.level.waiting--
}

// hash is a number for a flow.
func hash(schema, flow string) uint64 {
	sum := sha256.Sum256([]byte(schema + "\x00" + flow))
	return binary.LittleEndian.Uint64(sum[:])
}

// deal picks the lines of a flow: hand different ones of n, the same each time for the same flow. Two flows share all of
// their lines only rarely, so that a flood is not in everybody's way.
func deal(flow uint64, n, hand int) []int {
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
