package h2

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"
)

// heldBack is how much of an answer of unknown length is held back, because it may be all.
const heldBack = 4 << 10

// response is the answer to a request, as its handler writes it. Only the handler uses it, but for the stream.
type response struct {
	conn   *conn
	st     *stream
	header http.Header

	status  int             // 0 before the handler has said it
	said    http.Header     // the header as it was then, if it is not sent yet
	trailer map[string]bool // what the handler has announced for the end
	sent    bool            // the header is
	length  int64           // of the whole body; -1 when it is not known
	wrote   int64
	held    []byte
	parked  int // how much of that counts in the memory of the connection

	late, slow deadline // of the answer, and of the body of the request
}

// Header is what the answer will say.
func (w *response) Header() http.Header { return w.header }

// WriteHeader fixes the header. It is sent at once when nothing that follows can change it.
func (w *response) WriteHeader(status int) {
	if status < 100 || status > 999 {
		panic("h2: no such status: " + strconv.Itoa(status))
	}
	if w.status != 0 {
		return
	}
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if status < 200 {
		if status != http.StatusSwitchingProtocols && w.conn.wait(w.st) {
			w.block(strconv.Itoa(status), w.header, false)
			w.conn.flush(w.st)
		}
		return
	}
	w.status = status
	if w.st.body != nil {
		w.st.body.shy = false // an answer says that the body is not wanted
	}
	for name := range announced(w.header) {
		if w.trailer == nil {
			w.trailer = map[string]bool{}
		}
		w.trailer[name] = true
	}
	if text := w.header.Get("Content-Length"); text != "" {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
			w.length = n
		} else {
			w.header.Del("Content-Length")
		}
	}
	w.said = w.header
	if w.length >= 0 && w.header.Get("Content-Type") != "" || !w.bodied() {
		w.start(w.length == 0 || !w.bodied())
		return
	}
	w.said = w.header.Clone()
}

// bodied tells whether the answer may have a body.
func (w *response) bodied() bool {
	return w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// mute tells whether only the head of the answer is sent.
func (w *response) mute() bool { return w.st.req.Method == http.MethodHead }

// start sends the header, and that is all when last is true. The lock is held, but not all the time.
func (w *response) start(last bool) {
	if w.sent || !w.conn.wait(w.st) {
		return
	}
	w.sent = true
	if _, ok := w.said["Date"]; !ok {
		w.said["Date"] = []string{w.conn.out.now()}
	}
	last = w.mute() || last && len(w.trailer) == 0
	w.block(strconv.Itoa(w.status), w.said, last)
	if w.said.Get("Connection") == "close" {
		w.conn.farewell()
	}
	w.said = nil
	if last {
		w.done()
	}
}

// block adds a block of fields. The lock is held.
func (w *response) block(status string, h http.Header, last bool) {
	o := &w.conn.out
	o.bytes = appendHeaders(o.bytes, w.st.id, o.fields(status, h, w.trailer), last, o.frame)
}

// done says that the answer is complete.
func (w *response) done() {
	w.st.replied = true
	w.conn.forget(w.st)
}

// Write sends a piece of the body, or holds it back when it is small and may be all. The last piece of a body whose length
// was said ends the stream.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.bodied() {
		return 0, http.ErrBodyNotAllowed
	}
	if w.length >= 0 && w.wrote+int64(len(p)) > w.length {
		return 0, http.ErrContentLength
	}
	w.wrote += int64(len(p))
	last := w.wrote == w.length
	if !last && len(w.held)+len(p) <= heldBack {
		w.held = append(w.held, p...)
		return len(p), nil
	}
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if last && w.park(p) {
		return len(p), nil
	}
	if err := w.send(p, last); err != nil {
		return 0, err
	}
	w.conn.flush(w.st)
	return len(p), nil
}

// park keeps the end of an answer that the client does not take now, if it is small, so that its handler does not wait. It is sent after
// the handler has returned. The lock is held.
func (w *response) park(p []byte) bool {
	c, size := w.conn, len(w.held)+len(p)
	taken := min(c.out.window, w.st.window) >= int64(size) && len(c.out.starving) == 0 && !c.full()
	if taken || size > smallAnswer || c.parked+size > c.parkLimit() || w.st.failed != nil {
		return false
	}
	w.held = append(w.held, p...)
	w.parked = size
	c.parked += size
	c.account()
	return true
}

// send sends what was held back, then p. The lock is held.
func (w *response) send(p []byte, last bool) error {
	w.sniff(p)
	w.start(false)
	if w.st.failed != nil {
		return w.st.failed
	}
	if w.st.replied { // there is no more to say: who wrote all of the length, or to nobody, has been heard
		w.held = nil
		return nil
	}
	last = last && !w.ending()
	if len(w.held) > 0 {
		if err := w.conn.sendData(w.st, w.held, last && len(p) == 0); err != nil {
			return err
		}
		w.held = w.held[:0]
		if len(p) == 0 {
			if last {
				w.done()
			}
			return nil
		}
	}
	if len(p) > 0 || last {
		if err := w.conn.sendData(w.st, p, last); err != nil {
			return err
		}
	}
	if last {
		w.done()
	}
	return nil
}

// sniff completes the header by what the body begins with.
func (w *response) sniff(p []byte) {
	if w.sent {
		return
	}
	if len(w.held) > 0 {
		p = w.held
	}
	_, typed := w.said["Content-Type"]
	if !typed && len(p) > 0 && w.said.Get("Content-Encoding") == "" {
		w.said.Set("Content-Type", http.DetectContentType(p))
	}
}

// Flush sends what was written.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what was written, and says when nobody takes it.
func (w *response) FlushError() error {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if err := w.send(nil, false); err != nil {
		return err
	}
	w.conn.flush(w.st)
	return w.st.failed
}

// ending tells whether fields follow the body.
func (w *response) ending() bool {
	if len(w.trailer) > 0 {
		return true
	}
	for key := range w.header {
		if strings.HasPrefix(key, http.TrailerPrefix) {
			return true
		}
	}
	return false
}

// finish completes the answer after the handler has returned.
func (w *response) finish() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	st := w.st
	w.conn.parked += len(w.held) - w.parked // nobody but the client is waited for from here on
	w.parked = len(w.held)
	if st.failed == nil && !st.replied {
		switch {
		case w.length >= 0 && w.wrote < w.length && !w.mute():
			w.conn.abort(st, internalError) // a client must not take a part for the whole
		default:
			if !w.sent && w.length < 0 && (w.wrote > 0 || !w.mute()) {
				w.said.Set("Content-Length", strconv.FormatInt(w.wrote, 10))
			}
			if err := w.send(nil, true); err == nil && !st.replied && w.conn.wait(st) {
				w.finale()
			}
		}
	}
	w.release()
}

// finale sends the fields that follow the body.
func (w *response) finale() {
	t := http.Header{}
	for key, values := range w.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			t[textproto.CanonicalMIMEHeaderKey(name)] = values
		} else if w.trailer[key] {
			t[key] = values
		}
	}
	w.trailer = nil
	o := &w.conn.out
	if len(t) == 0 {
		o.bytes = appendFrame(o.bytes, frame{kind: frameData, flags: flagEndStream, stream: w.st.id})
	} else {
		w.block("", t, true)
	}
	w.done()
}

// abort ends the answer in the middle.
func (w *response) abort() {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if w.st.failed == nil && !w.st.replied {
		w.conn.abort(w.st, internalError)
	}
	w.release()
}

// release ends the request. A client that still sends its body is told that nobody reads it. The lock is held.
func (w *response) release() {
	st := w.st
	w.late.stop()
	w.slow.stop()
	w.conn.parked -= w.parked
	w.parked, w.held = 0, nil
	if st.body != nil {
		st.body.closed = true
		st.body.abandon()
	}
	if st.failed == nil && !st.asked {
		w.conn.abort(st, noError)
	}
	st.cancel()
	w.conn.release(st)
	w.conn.account()
	w.conn.flush(st)
}

// Authenticated says that the request of this answer has been authenticated. From then on its connection counts among those of users.
func (w *response) Authenticated() {
	if w.conn.authenticated.Load() {
		return
	}
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	w.conn.authenticate()
}

// Lasting says that the client may pause for as long as it likes: somebody reads a log page by page. It counts only on a connection on which
// a request has been authenticated. A client whose socket takes nothing is given up all the same.
func (w *response) Lasting() {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if w.conn.authenticated.Load() {
		w.st.lasting, w.st.stalled = true, time.Time{}
	}
}

// StalledByClient tells whether a write that is under way waits for the client. It is false while the write waits for this server.
func (w *response) StalledByClient() bool {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	return w.conn.stalledByClient(w.st)
}

// SetWriteDeadline ends the stream at a time: it is reset, and the handler's next write, or the one that waits, fails. The zero time is never.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.late.set(w.conn, t, func() {
		w.conn.expire(w.st, internalError)
		w.conn.call()
	})
	return nil
}

// SetReadDeadline ends the reading of the body at a time. What has come by then can still be read. The zero time is never.
func (w *response) SetReadDeadline(t time.Time) error {
	if w.st.body == nil {
		return nil
	}
	w.slow.set(w.conn, t, func() {
		w.st.body.late = true
		w.st.wake()
	})
	return nil
}

// EnableFullDuplex is how it always is: a handler may write before it has read all.
func (w *response) EnableFullDuplex() error { return nil }
