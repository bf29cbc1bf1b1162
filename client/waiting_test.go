package client

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestWhichEventsGo fills the room for three Events: words are NAME.REASON of those that happen, and what is left of them.
func TestWhichEventsGo(t *testing.T) {
	for _, test := range []struct {
		name, happen, left string
		lost               uint64
	}{
		{"there is room", "a.x b.x c.x", "a.x.0 b.x.1 c.x.2", 0},
		{"the oldest goes", "a.x b.x c.x d.x", "b.x.1 c.x.2 d.x.3", 1},
		{"a similar one goes first", "a.x b.x c.x b.x", "a.x.0 c.x.2 b.x.3", 1},
		{"another reason is not similar", "a.x b.x c.x b.y", "b.x.1 c.x.2 b.y.3", 1},
		{"a flood takes its own place", "a.x b.x c.x c.x c.x c.x", "a.x.0 b.x.1 c.x.5", 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			w := newWaiting(3 * weight(happened("a", "x", "0", now)))
			for i, word := range strings.Fields(test.happen) {
				name, reason, _ := strings.Cut(word, ".")
				w.put(happened(name, reason, fmt.Sprint(i), now.Add(time.Duration(i))))
			}
			var left []string
			for range w.all.Len() {
				ev := w.next(t.Context())
				left = append(left, ev.InvolvedObject.Name+"."+ev.Reason+"."+ev.Message)
			}
			if got := strings.Join(left, " "); got != test.left || w.lost() != test.lost {
				t.Errorf("left are %s, lost %d; want %s, %d", got, w.lost(), test.left, test.lost)
			}
			if w.size != 0 || len(w.alike) != 0 {
				t.Errorf("empty, it still holds %d bytes and %d kinds", w.size, len(w.alike))
			}
		})
	}
}

func TestAnEventLargerThanTheRoomIsKept(t *testing.T) {
	w := newWaiting(1)
	w.put(happened("a", "x", "long", time.Unix(1, 0)))
	if w.next(t.Context()) == nil {
		t.Error("the only Event is gone")
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if ev := w.next(ctx); ev != nil {
		t.Errorf("%v from nowhere", ev)
	}
}
