package client

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The bounds on Events, as Kubernetes has them.
const (
	// similarMost is the number of different messages of one kind about one object from which on they are combined, until
	// there was none for similarFor.
	similarMost = 10
	similarFor  = 10 * time.Minute
	// An object may have spamBurst Events at once, and one more in each spamEvery.
	spamBurst = 25
	spamEvery = 5 * time.Minute
	// similarKept bounds the memory; when it is full, all is forgotten, and the next Events begin anew.
	similarKept = 4096
)

// similar remembers the Events of one recorder. One goroutine uses it.
type similar struct {
	objects map[corev1.ObjectReference]*bucket
	kinds   map[happening]*messages
	series  map[series]*run
}

// happening is what Events have in common that differ in their message only.
type happening struct {
	about             corev1.ObjectReference
	eventType, reason string
}

type series struct {
	happening
	message string // empty for those that are combined
}

// run is a repeated Event.
type run struct {
	count  int32
	stored *corev1.Event // nil before the first is written
}

// messages are the texts of one happening, and when the last one came.
type messages struct {
	last  time.Time
	texts map[string]bool
}

// bucket lets Events of one object pass.
type bucket struct {
	left float64
	at   time.Time
}

func newSimilar() *similar {
	return &similar{objects: map[corev1.ObjectReference]*bucket{}, kinds: map[happening]*messages{}, series: map[series]*run{}}
}

// add counts an Event, completes it, and returns the run it belongs to, or nil when it must not be written.
func (s *similar) add(ev *corev1.Event) *run {
	if len(s.series) > similarKept || len(s.objects) > similarKept || len(s.kinds) > similarKept {
		*s = *newSimilar()
	}
	now := ev.LastTimestamp.Time
	what := happeningOf(ev)
	if !s.passes(what.about, now) {
		return nil
	}
	key := series{what, ev.Message}
	m := s.kinds[what]
	if m == nil || now.Sub(m.last) > similarFor {
		m = &messages{texts: map[string]bool{}}
		s.kinds[what] = m
	}
	m.last = now
	if m.texts[ev.Message] = true; len(m.texts) >= similarMost {
		delete(m.texts, ev.Message)
		key.message = ""
		ev.Message = "(combined from similar events): " + ev.Message
		ev.ReportingController, ev.ReportingInstance = "", "" // combined ones name their source only
	}
	r := s.series[key]
	if r == nil {
		r = &run{}
		s.series[key] = r
	}
	r.count++
	return r
}

func (s *similar) passes(about corev1.ObjectReference, now time.Time) bool {
	b := s.objects[about]
	if b == nil {
		b = &bucket{left: spamBurst, at: now}
		s.objects[about] = b
	}
	b.left = min(spamBurst, b.left+now.Sub(b.at).Seconds()/spamEvery.Seconds())
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}
