package responsewriter

import (
	"net/http"
	"sync"
	"time"

	"proa.dev/server/h2"
)

// A client that takes nothing of a piece of its answer for longer than this is cut off.
const (
	maxStall            = 30 * time.Second // while nobody else needs the seat and the memory of the answer
	contestedStallLimit = 5 * time.Second  // when somebody does
	stallInterval       = time.Second      // between checks
)

// stallTimer aborts an answer when its client stops reading it, so that other requests get its seat and memory. All
// methods may be called on nil.
type stallTimer struct {
	out   *Writer
	timer *time.Timer

	mu      sync.Mutex // guards what follows
	writing bool
	checked time.Time     // when the present write began, or was checked last
	stalled time.Duration // how long the present write has waited for the client
	ended   bool
}

// newStallTimer starts to check the writes of an answer.
func newStallTimer(w *Writer) *stallTimer {
	t := &stallTimer{out: w}
	t.mu.Lock() // check may run at once
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(stallInterval, t.check)
	return t
}

// begin is called before a write.
func (t *stallTimer) begin() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing, t.checked, t.stalled = true, time.Now(), 0
}

// end is called after a write.
func (t *stallTimer) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writing = false
}

// check aborts the answer if its client keeps a write waiting for too long. With HTTP/1.1 the connection ends, with
// HTTP/2 only the stream.
func (t *stallTimer) check() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	if t.writing {
		now := time.Now()
		if t.out.stalledByClient() {
			t.stalled += min(now.Sub(t.checked), stallInterval) // more has passed when this server was too busy to check
		}
		t.checked = now
		if t.stalled >= t.out.StallLimit() {
			_ = http.NewResponseController(t.out.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
			return
		}
	}
	t.timer.Reset(stallInterval)
}

// stop ends the checks.
func (t *stallTimer) stop() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	t.timer.Stop()
}

// StallLimit returns for how long the client may take nothing of its answer.
func (w *Writer) StallLimit() time.Duration {
	if w.Memory.IsScarce() || w.Seat.contested() {
		return contestedStallLimit
	}
	return maxStall
}

// stalledByClient tells whether the present write waits for the client. On a busy machine it may wait for this server
// instead, while the client has read everything that it was sent.
func (w *Writer) stalledByClient() bool {
	if s, ok := w.ResponseWriter.(interface{ StalledByClient() bool }); ok {
		return s.StalledByClient()
	}
	return w.Socket == nil || h2.SendBufferFull(w.Socket)
}
