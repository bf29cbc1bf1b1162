package client

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// The limits on Events are those of client-go.
const (
	// From aggregateMessages different messages about the same object with the same reason on, Events are combined into
	// one, until no such Event came for aggregateInterval.
	aggregateMessages = 10
	aggregateInterval = 10 * time.Minute
	// An object may have spamBurst Events at once, and one more for each spamInterval.
	spamBurst    = 25
	spamInterval = 5 * time.Minute
	// maxAggregated bounds the memory of an aggregator; when it is reached, everything is forgotten.
	maxAggregated = 4096
)

// aggregator combines the Events of one recorder: it counts repetitions, combines similar messages and limits the
// Events of each object. It must be used by one goroutine only.
type aggregator struct {
	limiters map[corev1.ObjectReference]*tokenBucket
	messages map[eventKey]*messages
	series   map[seriesKey]*series
}

// eventKey is what Events have in common that differ in their messages only.
type eventKey struct {
	object            corev1.ObjectReference
	eventType, reason string
}

// seriesKey identifies a series of Events that repeat each other.
type seriesKey struct {
	eventKey
	message string // empty for a series of combined Events
}

// series is an Event that is repeated.
type series struct {
	count  int32
	stored *corev1.Event // nil until the first Event of the series is written
}

// messages are the different messages of one eventKey, and when the last one came.
type messages struct {
	last  time.Time
	texts map[string]bool
}

// tokenBucket limits the Events of one object.
type tokenBucket struct {
	tokens  float64
	updated time.Time
}

func newAggregator() *aggregator {
	return &aggregator{
		limiters: map[corev1.ObjectReference]*tokenBucket{}, messages: map[eventKey]*messages{}, series: map[seriesKey]*series{},
	}
}

// add counts an Event in its series and returns the series, or nil if the Event must not be written because its object
// has too many. The message of an Event that is combined with others is changed.
func (a *aggregator) add(ev *corev1.Event) *series {
	if len(a.series) > maxAggregated || len(a.limiters) > maxAggregated || len(a.messages) > maxAggregated {
		*a = *newAggregator()
	}
	now := ev.LastTimestamp.Time
	about := eventKeyOf(ev)
	if !a.allows(about.object, now) {
		return nil
	}
	key := seriesKey{about, ev.Message}
	m := a.messages[about]
	if m == nil || now.Sub(m.last) > aggregateInterval {
		m = &messages{texts: map[string]bool{}}
		a.messages[about] = m
	}
	m.last = now
	if m.texts[ev.Message] = true; len(m.texts) >= aggregateMessages {
		delete(m.texts, ev.Message)
		key.message = ""
		ev.Message = "(combined from similar events): " + ev.Message
		ev.ReportingController, ev.ReportingInstance = "", "" // combined Events have only a source
	}
	s := a.series[key]
	if s == nil {
		s = &series{}
		a.series[key] = s
	}
	s.count++
	return s
}

// allows takes a token for an Event about an object, and returns false if there is none.
func (a *aggregator) allows(object corev1.ObjectReference, now time.Time) bool {
	b := a.limiters[object]
	if b == nil {
		b = &tokenBucket{tokens: spamBurst, updated: now}
		a.limiters[object] = b
	}
	b.tokens = min(spamBurst, b.tokens+now.Sub(b.updated).Seconds()/spamInterval.Seconds())
	b.updated = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
