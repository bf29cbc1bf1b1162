package client

import (
	"container/list"
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// maxWaiting bounds the memory of the Events that wait, in bytes: some ten thousand of them.
const maxWaiting = 8 << 20

// waiting are the Events that are not written yet, oldest first. When they would take too much room, one goes: the oldest
// of those that say the same of the same object as the new one, because that one says it later; if there is none, the
// oldest of all. Nobody waits to put one in.
type waiting struct {
	room  int
	ready chan struct{} // has one in it when there may be an Event

	mu      sync.Mutex // guards what follows
	all     *list.List // of *corev1.Event
	alike   map[happening][]*list.Element
	size    int
	dropped uint64
}

func newWaiting(room int) *waiting {
	return &waiting{room: room, ready: make(chan struct{}, 1), all: list.New(), alike: map[happening][]*list.Element{}}
}

func (w *waiting) put(ev *corev1.Event) {
	w.mu.Lock()
	key := happeningOf(ev)
	for w.size+weight(ev) > w.room && w.all.Len() > 0 {
		victim := w.all.Front()
		if similar := w.alike[key]; len(similar) > 0 {
			victim = similar[0]
		}
		w.remove(victim)
		w.dropped++
	}
	w.alike[key] = append(w.alike[key], w.all.PushBack(ev))
	w.size += weight(ev)
	w.mu.Unlock()
	select {
	case w.ready <- struct{}{}:
	default:
	}
}

// remove takes out an Event, which is the first of those like it.
func (w *waiting) remove(e *list.Element) *corev1.Event {
	ev := w.all.Remove(e).(*corev1.Event)
	w.size -= weight(ev)
	key := happeningOf(ev)
	if rest := w.alike[key][1:]; len(rest) > 0 {
		w.alike[key] = rest
	} else {
		delete(w.alike, key)
	}
	return ev
}

// next takes the oldest Event, or waits for one until ctx ends; nil then.
func (w *waiting) next(ctx context.Context) *corev1.Event {
	for {
		w.mu.Lock()
		if first := w.all.Front(); first != nil {
			defer w.mu.Unlock()
			return w.remove(first)
		}
		w.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-w.ready:
		}
	}
}

// lost counts the Events that went without having been written.
func (w *waiting) lost() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.dropped
}

// weight is about the memory of an Event: its fields, and the texts that are its own.
func weight(ev *corev1.Event) int { return 768 + len(ev.Name) + len(ev.Message) }

// happeningOf is what an Event says and of whom, without its words.
func happeningOf(ev *corev1.Event) happening {
	about := ev.InvolvedObject
	about.ResourceVersion = "" // the same object, whatever has changed of it
	return happening{about, ev.Type, ev.Reason}
}
