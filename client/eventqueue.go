package client

import (
	"container/list"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/internal/wait"
)

// maxQueuedBytes bounds the memory of the Events that wait to be written: about ten thousand Events.
const maxQueuedBytes = 8 << 20

// eventQueue holds the Events that are not written yet, oldest first. If a new Event would exceed the limit, another
// one is dropped: the oldest with the same object and reason, since the new Event repeats it, or else the oldest of
// all.
type eventQueue struct {
	maxBytes int
	ready    wait.Signal // sent when an Event is added

	mu      sync.Mutex // guards what follows
	all     *list.List // of *corev1.Event
	byKey   map[eventKey][]*list.Element
	bytes   int
	dropped uint64
}

func newEventQueue(maxBytes int) *eventQueue {
	return &eventQueue{maxBytes: maxBytes, ready: wait.NewSignal(), all: list.New(), byKey: map[eventKey][]*list.Element{}}
}

func (q *eventQueue) add(ev *corev1.Event) {
	q.mu.Lock()
	key := eventKeyOf(ev)
	for q.bytes+sizeOf(ev) > q.maxBytes && q.all.Len() > 0 {
		victim := q.all.Front()
		if similar := q.byKey[key]; len(similar) > 0 {
			victim = similar[0]
		}
		q.remove(victim)
		q.dropped++
	}
	q.byKey[key] = append(q.byKey[key], q.all.PushBack(ev))
	q.bytes += sizeOf(ev)
	q.mu.Unlock()
	q.ready.Send()
}

// remove takes out an Event, which must be the oldest with its key.
func (q *eventQueue) remove(e *list.Element) *corev1.Event {
	ev := q.all.Remove(e).(*corev1.Event)
	q.bytes -= sizeOf(ev)
	key := eventKeyOf(ev)
	if rest := q.byKey[key][1:]; len(rest) > 0 {
		q.byKey[key] = rest
	} else {
		delete(q.byKey, key)
	}
	return ev
}

// next removes and returns the oldest Event. If there is none it waits for one, and returns nil when ctx ends.
func (q *eventQueue) next(ctx context.Context) *corev1.Event {
	for {
		q.mu.Lock()
		if first := q.all.Front(); first != nil {
			defer q.mu.Unlock()
			return q.remove(first)
		}
		q.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-q.ready:
		}
	}
}

// droppedCount returns the number of Events that were dropped.
func (q *eventQueue) droppedCount() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}

// sizeOf estimates the memory of an Event.
func sizeOf(ev *corev1.Event) int { return 768 + len(ev.Name) + len(ev.Message) }

// eventKeyOf returns what an Event has in common with those that differ in their message only.
func eventKeyOf(ev *corev1.Event) eventKey {
	object := ev.InvolvedObject
	object.ResourceVersion = "" // Events about different versions of an object are about the same object
	return eventKey{object, ev.Type, ev.Reason}
}
