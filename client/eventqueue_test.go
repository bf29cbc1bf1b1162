package client

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestDroppedEvents adds Events, given as NAME.REASON, to a queue with room for three of them.
func TestDroppedEvents(t *testing.T) {
	for _, test := range []struct {
		name, happen, left string
		dropped            uint64
	}{
		{"the queue is not full", "a.x b.x c.x", "a.x.0 b.x.1 c.x.2", 0},
		{"the oldest Event is dropped", "a.x b.x c.x d.x", "b.x.1 c.x.2 d.x.3", 1},
		{"an Event with the same object and reason is dropped first", "a.x b.x c.x b.x", "a.x.0 c.x.2 b.x.3", 1},
		{"an Event with another reason is not preferred", "a.x b.x c.x b.y", "b.x.1 c.x.2 b.y.3", 1},
		{"a flood replaces its own Events", "a.x b.x c.x c.x c.x c.x", "a.x.0 b.x.1 c.x.5", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			w := newEventQueue(3 * sizeOf(newEvent("a", "x", "0", now)))
			for i, word := range strings.Fields(test.happen) {
				name, reason, _ := strings.Cut(word, ".")
				w.add(newEvent(name, reason, fmt.Sprint(i), now.Add(time.Duration(i))))
			}
			var left []string
			for range w.all.Len() {
				ev := w.next(t.Context())
				left = append(left, ev.InvolvedObject.Name+"."+ev.Reason+"."+ev.Message)
			}
			if got := strings.Join(left, " "); got != test.left || w.droppedCount() != test.dropped {
				t.Errorf("left are %s, dropped %d; want %s, %d", got, w.droppedCount(), test.left, test.dropped)
			}
			if w.bytes != 0 || len(w.byKey) != 0 {
				t.Errorf("empty, it still holds %d bytes and %d kinds", w.bytes, len(w.byKey))
			}
		})
	}
}

func TestEventLargerThanQueueIsKept(t *testing.T) {
	w := newEventQueue(1)
	w.add(newEvent("a", "x", "long", time.Unix(1, 0)))
	if w.next(t.Context()) == nil {
		t.Error("the only Event is gone")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if ev := w.next(ctx); ev != nil {
		t.Errorf("%v from nowhere", ev)
	}
}
