package cloud

import "sync"

// Once remembers what people were told about something, so that they are told again only when it is something else. Nothing
// depends on it but the number of Events.
type Once struct {
	mu   sync.Mutex // guards said
	said map[string]string
}

// New says whether a text about something is another than the last. An empty text is that there is nothing to tell.
func (o *Once) New(about, text string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.said[about] == text {
		return false
	}
	if text == "" {
		delete(o.said, about)
		return false
	}
	if o.said == nil {
		o.said = map[string]string{}
	}
	o.said[about] = text
	return true
}
