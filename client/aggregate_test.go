package client

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func newEvent(name, reason, message string, at time.Time) *corev1.Event {
	return &corev1.Event{InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: name, ResourceVersion: fmt.Sprint(at.UnixNano())},
		Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: metav1.NewTime(at)}
}

func TestRepeatedEventsAreCounted(t *testing.T) {
	s, now := newAggregator(), time.Unix(1000, 0)
	first := s.add(newEvent("a", "Failed", "no", now))
	again := s.add(newEvent("a", "Failed", "no", now.Add(time.Second)))
	if first != again || again.count != 2 {
		t.Errorf("the same twice: %+v and %+v, want one series of 2", first, again)
	}
	for what, other := range map[string]*corev1.Event{
		"another object":  newEvent("b", "Failed", "no", now),
		"another reason":  newEvent("a", "Killed", "no", now),
		"another message": newEvent("a", "Failed", "never", now),
	} {
		if r := s.add(other); r == first || r.count != 1 {
			t.Errorf("%s: %+v, want a series of its own", what, r)
		}
	}
}

func TestManyMessagesAreCombined(t *testing.T) {
	s, now := newAggregator(), time.Unix(1000, 0)
	var last *corev1.Event
	var r *series
	for i := range 11 {
		last = newEvent("a", "Failed", fmt.Sprint("try ", i), now)
		last.ReportingController = "tester"
		if r = s.add(last); i == 8 && (last.Message != "try 8" || last.ReportingController != "tester") {
			t.Errorf("the ninth is %q, want it as it is", last.Message)
		}
	}
	if last.Message != "(combined from similar events): try 10" || r.count != 2 || last.ReportingController != "" {
		t.Errorf("the eleventh is %q with count %d by %q, want the second combined one", last.Message, r.count, last.ReportingController)
	}
	soon := newEvent("a", "Failed", "try 11", now.Add(aggregateInterval))
	if s.add(soon); soon.Message != "(combined from similar events): try 11" {
		t.Errorf("a little later: %q, want it combined", soon.Message)
	}
	later := newEvent("a", "Failed", "try 12", now.Add(2*aggregateInterval+time.Second))
	if s.add(later); later.Message != "try 12" {
		t.Errorf("after a while: %q, want it as it is", later.Message)
	}
}

func TestEventFloodOfOneObjectIsLimited(t *testing.T) {
	s, now := newAggregator(), time.Unix(1000, 0)
	passed := 0
	for range 100 {
		if s.add(newEvent("a", "Failed", "no", now)) != nil {
			passed++
		}
	}
	if passed != spamBurst {
		t.Errorf("%d passed, want %d", passed, spamBurst)
	}
	if s.add(newEvent("b", "Failed", "no", now)) == nil {
		t.Error("an Event about another object was stopped")
	}
	if s.add(newEvent("a", "Failed", "no", now.Add(spamInterval))) == nil {
		t.Error("after a while one more may pass")
	}
	for i := range 2 * maxAggregated {
		s.add(newEvent(fmt.Sprint(i), "Failed", "no", now))
	}
	if len(s.limiters) > maxAggregated+1 || len(s.series) > maxAggregated+1 {
		t.Errorf("%d objects and %d series are kept", len(s.limiters), len(s.series))
	}
}
