package h2

import (
	"errors"
	"io"
	"net/http"
	"os"

	"proa.dev/server/h2/chunkbuffer"
	"proa.dev/server/h2/h2wire"
)

// receiveWindow is the flow-control window that this side grants the peer.
type receiveWindow struct {
	room, size int
	owed       int // bytes that were read and not granted again yet
}

// consume takes n received bytes off the window. It is false when the peer has sent more than it was granted.
func (i *receiveWindow) consume(n int) bool {
	i.room -= n
	return i.room >= 0
}

// restore counts n bytes that were read. It returns by how much the window is to be extended now: 0 until that is worth
// a frame.
func (i *receiveWindow) restore(n int) int {
	if i.owed += n; i.owed < min(i.size, bodyWindow)/4 {
		return 0
	}
	n, i.owed = i.owed, 0
	i.room += n
	return n
}

// restoreWindow lets the peer send n more bytes after n were read: on the connection, and on the stream if it is still
// open.
func (c *conn) restoreWindow(st *stream, n int) {
	if n == 0 {
		return
	}
	if more := c.bodies.restore(n); more > 0 {
		c.out.bytes = h2wire.AppendWindowUpdate(c.out.bytes, 0, more)
	}
	if st == nil || st.requestDone || st.failed != nil {
		return
	}
	if more := st.body.window.restore(n); more > 0 {
		c.out.bytes = h2wire.AppendWindowUpdate(c.out.bytes, st.id, more)
	}
}

// body is the body of a request, as its handler reads it. The lock of the connection guards it.
type body struct {
	st              *stream
	window          receiveWindow
	chunks          chunkbuffer.Buffer // received and not read
	remaining       int64              // bytes that are still to come; -1 when the client gave no Content-Length
	complete        bool               // nothing more comes
	closed          bool               // nobody reads it any more
	readExpired     bool               // the read deadline has passed
	small           bool               // it is collected before its handler starts
	expectsContinue bool               // the client waits for a "100 Continue" response before it sends the body
	trailer         http.Header
}

func newBody(st *stream, length int64, shy bool) *body {
	return &body{st: st, remaining: length, expectsContinue: shy, small: length >= 0 && length <= smallBody,
		window: receiveWindow{room: StreamWindow, size: StreamWindow}}
}

// add takes a piece of the body. It is false when the body gets longer than its Content-Length.
func (b *body) add(p []byte) bool {
	if b.remaining >= 0 {
		if b.remaining -= int64(len(p)); b.remaining < 0 {
			return false
		}
	}
	c := b.st.conn
	if b.closed {
		c.restoreWindow(b.st, len(p))
		return true
	}
	c.unread += len(p)
	if !b.st.dispatched {
		c.collecting += len(p)
	}
	b.chunks.Add(p)
	b.st.wake()
	return true
}

// end records that nothing more comes. It is false when the body is shorter than its Content-Length.
func (b *body) end(trailer http.Header) bool {
	if b.remaining > 0 {
		return false
	}
	b.complete, b.trailer = true, trailer
	b.st.wake()
	return true
}

// discard drops the part of the body that nobody will read. A later read does not take the gap for the end of the body.
func (b *body) discard() {
	n := b.chunks.Size
	b.complete = b.complete && n == 0
	b.chunks.Drop()
	if !b.st.dispatched {
		b.st.conn.collecting -= n
	}
	b.consumed(n)
}

// consumed records that n bytes were read, or dropped, and lets the client send as many again.
func (b *body) consumed(n int) {
	b.st.conn.unread -= n
	b.st.conn.restoreWindow(b.st, n)
}

// growWindow lets the client send more at a time, because a handler reads now. A body that fits into the window needs
// no more.
func (b *body) growWindow() {
	more := bodyWindow - b.window.size
	if more <= 0 || b.complete || b.st.failed != nil || b.remaining >= 0 && b.remaining <= int64(b.window.room) {
		return
	}
	b.window.size += more
	b.window.room += more
	b.st.conn.out.bytes = h2wire.AppendWindowUpdate(b.st.conn.out.bytes, b.st.id, more)
	b.st.conn.flush(b.st)
}

// errClosed is the error of a Read after Close.
var errClosed = errors.New("http: invalid Read on closed Body")

// Read returns the next bytes of the body, and waits for them.
func (b *body) Read(p []byte) (int, error) {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.expectsContinue && !b.closed {
		b.growWindow()
	}
	for {
		switch {
		case b.closed:
			return 0, errClosed
		case b.chunks.Size > 0:
			n := b.chunks.Next(p)
			b.consumed(n)
			c.flush(b.st)
			return n, nil
		case b.readExpired:
			return 0, os.ErrDeadlineExceeded
		case b.complete:
			return 0, b.eof()
		case b.st.failed != nil:
			return 0, b.st.failed
		case b.expectsContinue:
			b.expectsContinue = false
			c.out.bytes = h2wire.AppendHeaders(c.out.bytes, b.st.id, c.out.encoder.Fields("100", nil, nil), false, c.out.maxFrame)
			b.growWindow()
			c.flush(b.st)
		default:
			b.st.await()
		}
	}
}

// Whole returns the complete body without copying it, and true, if it was received before its handler started.
// Otherwise it returns false, and the body has to be read.
func (b *body) Whole() ([]byte, bool) {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.complete || !b.small || b.closed || b.readExpired {
		return nil, false
	}
	p := b.chunks.All()
	b.consumed(len(p))
	_ = b.eof()
	return p, true
}

// eof returns io.EOF after it has filled in the trailer of the request.
func (b *body) eof() error {
	for name := range b.st.req.Trailer {
		if v, ok := b.trailer[name]; ok {
			b.st.req.Trailer[name] = v
		}
	}
	return io.EOF
}

// Close drops the rest of the body.
func (b *body) Close() error {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closed = true
	b.discard()
	c.flush(b.st)
	return nil
}
