package route

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// answer is what goes back to the client. It knows the code that was sent, and does not wait forever for clients that do not
// take what they asked for, or do not send what they promised.
type answer struct {
	http.ResponseWriter
	control *http.ResponseController
	code    int
	writing stall
	reading stall
	upload  *upload // nil where there is no body, or another protocol than HTTP/1
}

func newAnswer(w http.ResponseWriter, patience time.Duration) *answer {
	a := &answer{ResponseWriter: w, control: http.NewResponseController(w)}
	a.writing = stall{patience: patience, end: func() { _ = a.control.SetWriteDeadline(time.Unix(1, 0)) }}
	a.reading = stall{patience: patience, end: func() { _ = a.control.SetReadDeadline(time.Unix(1, 0)) }}
	return a
}

// Unwrap lets http.ResponseController find what the server can do.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *answer) WriteHeader(code int) {
	if code >= 200 || code == http.StatusSwitchingProtocols {
		a.code = code
		if a.upload != nil && !a.upload.over.Load() && code >= 200 {
			// What is left of the body must not be taken for the next request.
			a.Header().Set("Connection", "close")
		}
	}
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	a.writing.begin()
	defer a.writing.over()
	return a.ResponseWriter.Write(p)
}

// FlushError is what http.ResponseController calls.
func (a *answer) FlushError() error {
	a.writing.begin()
	defer a.writing.over()
	return a.control.Flush()
}

// done says that the request is over; nothing may touch its connection any more.
func (a *answer) done() {
	a.writing.close()
	a.reading.close()
	if a.upload != nil && !a.upload.over.Load() {
		// The server waits for some of what is left, so that the client gets to read the answer.
		_ = a.control.SetReadDeadline(time.Now().Add(a.reading.patience))
	}
}

// upload is the body of a request over HTTP/1. In HTTP/2 a stream may be quiet for as long as it likes.
type upload struct {
	io.ReadCloser
	stall        *stall
	over, failed atomic.Bool
}

func (u *upload) Read(p []byte) (int, error) {
	u.stall.begin()
	defer u.stall.over()
	n, err := u.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		u.over.Store(true)
	case err != nil:
		u.failed.Store(true)
	}
	return n, err
}

// stall ends something that takes too long.
type stall struct {
	patience time.Duration
	end      func()

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	done  bool
}

func (s *stall) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.patience, s.expire)
	default:
		s.timer.Reset(s.patience)
	}
}

func (s *stall) over() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *stall) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.end()
	}
}

func (s *stall) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
