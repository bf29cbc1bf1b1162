package h2

import (
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"proa.dev/server/h2/h2wire"
)

// maxBuffered is how much of a response without Content-Length is held back, because it may be the whole response.
const maxBuffered = 4 << 10

// response is the http.ResponseWriter of a stream. Only its handler uses it, except for the stream.
type response struct {
	conn   *conn
	st     *stream
	header http.Header

	status     int             // 0 before WriteHeader
	fixed      http.Header     // the header as it was at WriteHeader, until it is sent
	trailer    map[string]bool // the trailer fields that the handler has announced
	headerSent bool            // the header has been sent
	length     int64           // the Content-Length; -1 when it is not known
	written    int64
	buffered   []byte
	parked     int // how many of the buffered bytes count as parked in the memory of the connection

	writeDeadline, readDeadline deadline // of the response, and of the body of the request
}

// Header returns the header, which the handler may change until WriteHeader.
func (w *response) Header() http.Header { return w.header }

// WriteHeader fixes the header. The header is sent at once if nothing that follows can change it.
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
		if status != http.StatusSwitchingProtocols && w.conn.waitForRoom(w.st) {
			w.appendFields(strconv.Itoa(status), w.header, false)
			w.conn.flush(w.st)
		}
		return
	}
	w.status = status
	if w.st.body != nil {
		w.st.body.expectsContinue = false // a final response says that the body is not wanted
	}
	for name := range h2wire.TrailerNames(w.header) {
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
	w.fixed = w.header
	if w.length >= 0 && w.header.Get("Content-Type") != "" || !w.mayHaveBody() {
		w.sendHeader(w.length == 0 || !w.mayHaveBody())
		return
	}
	w.fixed = w.header.Clone()
}

// mayHaveBody reports whether the status allows a body.
func (w *response) mayHaveBody() bool {
	return w.status != http.StatusNoContent && w.status != http.StatusNotModified
}

// isHead reports whether only the header of the response is sent.
func (w *response) isHead() bool { return w.st.req.Method == http.MethodHead }

// sendHeader sends the header; the response is complete when last is true. The lock is held, but not while it waits for
// room.
func (w *response) sendHeader(last bool) {
	if w.headerSent || !w.conn.waitForRoom(w.st) {
		return
	}
	w.headerSent = true
	if _, ok := w.fixed["Date"]; !ok {
		w.fixed["Date"] = []string{w.conn.out.encoder.Date()}
	}
	last = w.isHead() || last && len(w.trailer) == 0
	w.appendFields(strconv.Itoa(w.status), w.fixed, last)
	if w.fixed.Get("Connection") == "close" {
		w.conn.sendGoAway()
	}
	w.fixed = nil
	if last {
		w.complete()
	}
}

// appendFields adds a HEADERS frame to the output buffer. The lock is held.
func (w *response) appendFields(status string, h http.Header, last bool) {
	o := &w.conn.out
	o.bytes = h2wire.AppendHeaders(o.bytes, w.st.id, o.encoder.Fields(status, h, w.trailer), last, o.maxFrame)
}

// complete records that the whole response has been queued.
func (w *response) complete() {
	w.st.responseDone = true
	w.conn.removeIfDone(w.st)
}

// Write sends a piece of the body, or buffers it when it is small and may be the whole response. The last piece of a
// body with a Content-Length ends the stream.
func (w *response) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if !w.mayHaveBody() {
		return 0, http.ErrBodyNotAllowed
	}
	if w.length >= 0 && w.written+int64(len(p)) > w.length {
		return 0, http.ErrContentLength
	}
	w.written += int64(len(p))
	last := w.written == w.length
	if !last && len(w.buffered)+len(p) <= maxBuffered {
		w.buffered = append(w.buffered, p...)
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

// park keeps the end of a response that the client does not accept now, if it is small, so that its handler does not
// wait. It is sent after the handler has returned. The lock is held.
func (w *response) park(p []byte) bool {
	c, size := w.conn, len(w.buffered)+len(p)
	taken := min(c.out.window, w.st.window) >= int64(size) && len(c.out.waiting) == 0 && !c.isFull()
	if taken || size > smallAnswer || c.parked+size > c.parkLimit() || w.st.failed != nil {
		return false
	}
	w.buffered = append(w.buffered, p...)
	w.parked = size
	c.parked += size
	c.account()
	return true
}

// send sends what was buffered, then p. The lock is held.
func (w *response) send(p []byte, last bool) error {
	w.detectContentType(p)
	w.sendHeader(false)
	if w.st.failed != nil {
		return w.st.failed
	}
	if w.st.responseDone { // the response is complete already, or has no body
		w.buffered = nil
		return nil
	}
	last = last && !w.hasTrailer()
	if len(w.buffered) > 0 {
		if err := w.conn.sendData(w.st, w.buffered, last && len(p) == 0); err != nil {
			return err
		}
		w.buffered = w.buffered[:0]
		if len(p) == 0 {
			if last {
				w.complete()
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
		w.complete()
	}
	return nil
}

// detectContentType sets the Content-Type from the first bytes of the body, as net/http does.
func (w *response) detectContentType(p []byte) {
	if w.headerSent {
		return
	}
	if len(w.buffered) > 0 {
		p = w.buffered
	}
	_, typed := w.fixed["Content-Type"]
	if !typed && len(p) > 0 && w.fixed.Get("Content-Encoding") == "" {
		w.fixed.Set("Content-Type", http.DetectContentType(p))
	}
}

// Flush sends what was written.
func (w *response) Flush() { _ = w.FlushError() }

// FlushError sends what was written. It returns an error when the stream has ended.
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

// hasTrailer reports whether trailer fields follow the body.
func (w *response) hasTrailer() bool {
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

// finish completes the response after the handler has returned.
func (w *response) finish() {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	st := w.st
	w.conn.parked += len(w.buffered) - w.parked // from here on only the client is waited for
	w.parked = len(w.buffered)
	if st.failed == nil && !st.responseDone {
		switch {
		case w.length >= 0 && w.written < w.length && !w.isHead():
			w.conn.resetStream(st, h2wire.InternalError) // the client must not take a part of the body for all of it
		default:
			if !w.headerSent && w.length < 0 && (w.written > 0 || !w.isHead()) {
				w.fixed.Set("Content-Length", strconv.FormatInt(w.written, 10))
			}
			if err := w.send(nil, true); err == nil && !st.responseDone && w.conn.waitForRoom(st) {
				w.sendTrailer()
			}
		}
	}
	w.release()
}

// sendTrailer ends the stream, with the trailer fields if there are any.
func (w *response) sendTrailer() {
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
		o.bytes = h2wire.AppendFrame(o.bytes, h2wire.Frame{Type: h2wire.FrameData, Flags: h2wire.FlagEndStream, Stream: w.st.id})
	} else {
		w.appendFields("", t, true)
	}
	w.complete()
}

// abort resets the stream, for example after a panic of the handler.
func (w *response) abort() {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if w.st.failed == nil && !w.st.responseDone {
		w.conn.resetStream(w.st, h2wire.InternalError)
	}
	w.release()
}

// release ends the request. A client that still sends its body is told that nobody reads it. The lock is held.
func (w *response) release() {
	st := w.st
	w.writeDeadline.stop()
	w.readDeadline.stop()
	w.conn.parked -= w.parked
	w.parked, w.buffered = 0, nil
	if st.body != nil {
		st.body.closed = true
		st.body.discard()
	}
	if st.failed == nil && !st.requestDone {
		w.conn.resetStream(st, h2wire.NoError)
	}
	st.cancel()
	w.conn.release(st)
	w.conn.account()
	w.conn.flush(st)
}

// Authenticated reports that the request of this response has been authenticated. From then on its connection has the
// limits of authenticated connections.
func (w *response) Authenticated() {
	if w.conn.authenticated.Load() {
		return
	}
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	w.conn.authenticate()
}

// Lasting allows the client to pause for as long as it likes, for example while somebody reads a log page by page. It
// has an effect only on a connection on which a request has been authenticated. A client whose socket accepts nothing
// is disconnected all the same.
func (w *response) Lasting() {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	if w.conn.authenticated.Load() {
		w.st.mayPause, w.st.stalled = true, time.Time{}
	}
}

// StalledByClient reports whether the current write waits for the client. It is false while the write waits for this
// server.
func (w *response) StalledByClient() bool {
	w.conn.mu.Lock()
	defer w.conn.mu.Unlock()
	return w.conn.stalledByClient(w.st)
}

// SetWriteDeadline resets the stream at that time: the handler's current or next write fails. The zero time means no
// deadline.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.writeDeadline.set(w.conn, t, func() {
		w.conn.expire(w.st, h2wire.InternalError)
		w.conn.startWriter()
	})
	return nil
}

// SetReadDeadline ends the reading of the body at that time. What was received by then can still be read. The zero time
// means no deadline.
func (w *response) SetReadDeadline(t time.Time) error {
	if w.st.body == nil {
		return nil
	}
	w.readDeadline.set(w.conn, t, func() {
		w.st.body.readExpired = true
		w.st.wake()
	})
	return nil
}

// EnableFullDuplex does nothing: an HTTP/2 handler may always write before it has read everything.
func (w *response) EnableFullDuplex() error { return nil }
