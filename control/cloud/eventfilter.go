package cloud

import "sync"

// EventFilter remembers the last message about each subject, so that an Event is recorded only when the message changes. It is lost
// with the process; then the Event is recorded once more.
type EventFilter struct {
	mu   sync.Mutex // guards last
	last map[string]string
}

// IsNew reports whether a text about a subject differs from the last one, and remembers it. An empty text forgets the subject.
func (o *EventFilter) IsNew(subject, text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.last[subject] == text {
		return false
	}
	if text == "" {
		delete(o.last, subject)
		return false
	}
	if o.last == nil {
		o.last = map[string]string{}
	}
	o.last[subject] = text
	return true
}
