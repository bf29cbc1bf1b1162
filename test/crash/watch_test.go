package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// event is one event of the watch. A deletion has the value zero.
type event struct {
	kind, name string
	version
}

// watchHistory has the events of one watch over all its connections; it is always resumed after its last event.
type watchHistory struct {
	*cluster
	after  int64
	events []event
	now    map[string]version
	last   map[string]int // the last value of each object, also of deleted ones
}

// follow watches until the connection to the server ends; wait waits for that.
func (h *watchHistory) follow() (wait func()) {
	h.Helper()
	done := make(chan error, 1)
	opened := make(chan struct{})
	go func() { done <- h.read(h.Context(), 0, opened) }()
	select {
	case <-opened:
	case err := <-done:
		h.Fatalf("the watch cannot be opened: %v", err)
	}
	return func() {
		h.Helper()
		if err := <-done; err != nil {
			h.Errorf("the watch: %v", err)
		}
	}
}

// until watches until it has seen a revision.
func (h *watchHistory) until(rev int64) {
	h.Helper()
	ctx, stop := context.WithTimeout(h.Context(), time.Minute)
	defer stop()
	if err := h.read(ctx, rev, make(chan struct{})); err != nil {
		h.Errorf("the resumed watch: %v", err)
	}
	if h.after != rev {
		h.Errorf("the resumed watch ended at %d, before %d", h.after, rev)
	}
}

// read reads events up to a revision, or until the connection breaks.
func (h *watchHistory) read(ctx context.Context, until int64, opened chan<- struct{}) error {
	client := h.client()
	defer client.CloseIdleConnections()
	path := fmt.Sprintf("%s%s?watch=1&labelSelector=crash&resourceVersion=%d", h.base, collection, h.after)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, path, http.NoBody)
	if err != nil {
		return err
	}
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("resume after %d: %s", h.after, res.Status)
	}
	close(opened)
	for dec := json.NewDecoder(res.Body); until == 0 || h.after < until; {
		var e struct {
			Type   string          `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		if dec.Decode(&e) != nil {
			return nil // a truncated event will be sent again
		}
		if err := h.take(e.Type, e.Object); err != nil {
			return err
		}
	}
	return nil
}

// take adds an event, if it is the next one.
func (h *watchHistory) take(kind string, text []byte) error {
	var m configMap
	if err := json.Unmarshal(text, &m); err != nil {
		return err
	}
	if kind != "ADDED" && kind != "MODIFIED" && kind != "DELETED" {
		return fmt.Errorf("got %s %s", kind, text)
	}
	v, err := m.version()
	if err != nil {
		return err
	}
	if h.now == nil {
		h.now, h.last = map[string]version{}, map[string]int{}
	}
	name := m.Metadata.Name
	before, known := h.now[name]
	switch {
	case v.revision <= h.after:
		return fmt.Errorf("%s of %s at %d comes after %d", kind, name, v.revision, h.after)
	case kind == "ADDED" && (known || v.value != h.last[name]+1),
		kind == "MODIFIED" && v.value != before.value+1,
		kind == "DELETED" && (!known || v.value != before.value):
		return fmt.Errorf("%s of %s with version %d follows version %d (%v)", kind, name, v.value, before.value, known)
	}
	h.after, h.last[name] = v.revision, v.value
	if kind == "DELETED" {
		delete(h.now, name)
		v.value = 0
	} else {
		h.now[name] = v
	}
	h.events = append(h.events, event{kind, name, v})
	return nil
}

// compare checks that the events lead to the state of a list.
func (h *watchHistory) compare(l *listing) {
	h.Helper()
	if len(h.now) != len(l.objects) {
		h.Errorf("by the watch there are %d objects, by the list %d", len(h.now), len(l.objects))
	}
	for name, v := range l.objects {
		if h.now[name] != v {
			h.Errorf("%s: the watch saw %+v, the list has %+v", name, h.now[name], v)
		}
	}
}
