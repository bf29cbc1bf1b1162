package run

import "sync"

// notifier tells any number of waiters that something has changed. The zero value is ready for use.
type notifier struct {
	mu sync.Mutex
	c  chan struct{}
}

// changed returns a channel that is closed at the next change.
func (t *notifier) changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.c == nil {
		t.c = make(chan struct{})
	}
	return t.c
}

// notify wakes the waiters.
func (t *notifier) notify() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.c != nil {
		close(t.c)
		t.c = nil
	}
}
