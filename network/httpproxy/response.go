package httpproxy

import (
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// responseWriter writes the response to the client. It records the status code, and applies timeouts to clients that do not
// read their response or do not send their request body.
type responseWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	code    int
	writing watchdog
	reading watchdog
	upload  *upload // nil without a request body, and for other protocols than HTTP/1
}

func newResponseWriter(w http.ResponseWriter, byteTimeout time.Duration) *responseWriter {
	a := &responseWriter{ResponseWriter: w, control: http.NewResponseController(w)}
	a.writing = watchdog{byteTimeout: byteTimeout, end: func() { _ = a.control.SetWriteDeadline(time.Unix(1, 0)) }}
	a.reading = watchdog{byteTimeout: byteTimeout, end: func() { _ = a.control.SetReadDeadline(time.Unix(1, 0)) }}
	return a
}

// Unwrap lets http.ResponseController find the features of the server.
func (a *responseWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *responseWriter) WriteHeader(code int) {
	if code == http.StatusContinue {
		return // the server sends it to the client when the body is read, which begins once the endpoint has asked for it
	}
	if code >= 200 || code == http.StatusSwitchingProtocols {
		a.code = code
		if a.upload != nil && !a.upload.over.Load() && code >= 200 {
			// The rest of the body must not be parsed as the next request.
			a.Header().Set("Connection", "close")
		}
	}
	a.ResponseWriter.WriteHeader(code)
}

func (a *responseWriter) Write(p []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	a.writing.start()
	defer a.writing.stop()
	return a.ResponseWriter.Write(p)
}

// FlushError implements the method that http.ResponseController calls.
func (a *responseWriter) FlushError() error {
	a.writing.start()
	defer a.writing.stop()
	return a.control.Flush()
}

// done marks the request as finished; the connection must not be used any more.
func (a *responseWriter) done() {
	a.writing.close()
	a.reading.close()
	if a.upload != nil && !a.upload.over.Load() {
		// The server reads some of the rest of the body, so that the client gets to read the response.
		_ = a.control.SetReadDeadline(time.Now().Add(a.reading.byteTimeout))
	}
}

// upload is the body of a request over HTTP/1. It has a timeout between reads; an HTTP/2 stream may be idle.
type upload struct {
	io.ReadCloser
	watchdog     *watchdog
	over, failed atomic.Bool
}

func (u *upload) Read(p []byte) (int, error) {
	u.watchdog.start()
	defer u.watchdog.stop()
	n, err := u.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		u.over.Store(true)
	case err != nil:
		u.failed.Store(true)
	}
	return n, err
}

// watchdog calls a function when an operation takes too long.
type watchdog struct {
	byteTimeout time.Duration
	end         func()

	mu    sync.Mutex // guards what follows
	timer *time.Timer
	done  bool
}

func (s *watchdog) start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.done:
	case s.timer == nil:
		s.timer = time.AfterFunc(s.byteTimeout, s.expire)
	default:
		s.timer.Reset(s.byteTimeout)
	}
}

func (s *watchdog) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
}

func (s *watchdog) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.done {
		s.end()
	}
}

func (s *watchdog) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.done = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
