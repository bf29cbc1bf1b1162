package h2

import (
	"errors"
	"io"
	"net/http"
	"os"
)

// inflow is how much the peer may send.
type inflow struct {
	room, size int
	owed       int // read, and not yet allowed again
}

func (i *inflow) take(n int) bool {
	i.room -= n
	return i.room >= 0
}

// give counts what was read, and returns what the peer is to be told: something, once it is worth a frame.
func (i *inflow) give(n int) int {
	if i.owed += n; i.owed < min(i.size, bodyWindow)/4 {
		return 0
	}
	n, i.owed = i.owed, 0
	i.room += n
	return n
}

// refund allows the peer to send again what was read, of a stream that is still open, and of all.
func (c *conn) refund(st *stream, n int) {
	if n == 0 {
		return
	}
	if more := c.upload.give(n); more > 0 {
		c.out.bytes = appendWindow(c.out.bytes, 0, more)
	}
	if st == nil || st.asked || st.failed != nil {
		return
	}
	if more := st.body.inflow.give(n); more > 0 {
		c.out.bytes = appendWindow(c.out.bytes, st.id, more)
	}
}

// body is the body of a request. The lock of the connection guards it.
type body struct {
	st      *stream
	inflow  inflow
	chunks  chunks // received and not read
	rest    int64  // how much is still to come; -1 when that was not said
	whole   bool   // nothing more comes
	closed  bool   // nobody reads it any more
	late    bool   // the time for reading is over
	small   bool   // it is collected before its handler starts
	shy     bool   // the client waits to be told that it may send it
	trailer http.Header
}

func newBody(st *stream, length int64, shy bool) *body {
	return &body{st: st, rest: length, shy: shy, small: length >= 0 && length <= smallBody, inflow: inflow{room: StreamWindow, size: StreamWindow}}
}

// add takes a piece. It is false when the client has not said that so much would come.
func (b *body) add(p []byte) bool {
	if b.rest >= 0 {
		if b.rest -= int64(len(p)); b.rest < 0 {
			return false
		}
	}
	c := b.st.conn
	if b.closed {
		c.refund(b.st, len(p))
		return true
	}
	c.unread += len(p)
	if !b.st.begun {
		c.collecting += len(p)
	}
	b.chunks.add(p)
	b.st.wake()
	return true
}

// end says that nothing more comes. It is false when more was promised.
func (b *body) end(trailer http.Header) bool {
	if b.rest > 0 {
		return false
	}
	b.whole, b.trailer = true, trailer
	b.st.wake()
	return true
}

// abandon lets go of what nobody will read. What is missing then is not taken for the end.
func (b *body) abandon() {
	n := b.chunks.size
	b.whole = b.whole && n == 0
	b.chunks.drop()
	if !b.st.begun {
		b.st.conn.collecting -= n
	}
	b.read(n)
}

// read says that so much was read, or will not be, and allows the client to send as much again.
func (b *body) read(n int) {
	b.st.conn.unread -= n
	b.st.conn.refund(b.st, n)
}

// widen allows the client to send more at a time, because somebody reads now. A body that fits into the window needs no more.
func (b *body) widen() {
	more := bodyWindow - b.inflow.size
	if more <= 0 || b.whole || b.st.failed != nil || b.rest >= 0 && b.rest <= int64(b.inflow.room) {
		return
	}
	b.inflow.size += more
	b.inflow.room += more
	b.st.conn.out.bytes = appendWindow(b.st.conn.out.bytes, b.st.id, more)
	b.st.conn.flush(b.st)
}

// errClosed is what a handler gets that reads a body after it has closed it.
var errClosed = errors.New("http: invalid Read on closed Body")

// Read waits for the next piece of the body.
func (b *body) Read(p []byte) (int, error) {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.shy && !b.closed {
		b.widen()
	}
	for {
		switch {
		case b.closed:
			return 0, errClosed
		case b.chunks.size > 0:
			n := b.chunks.next(p)
			b.read(n)
			c.flush(b.st)
			return n, nil
		case b.late:
			return 0, os.ErrDeadlineExceeded
		case b.whole:
			return 0, b.eof()
		case b.st.failed != nil:
			return 0, b.st.failed
		case b.shy:
			b.shy = false
			c.out.bytes = appendHeaders(c.out.bytes, b.st.id, c.out.fields("100", nil, nil), false, c.out.frame)
			b.widen()
			c.flush(b.st)
		default:
			b.st.await()
		}
	}
}

// Whole takes all of a body that is here already, and false when it is not: who reads it piece by piece would copy it once more.
func (b *body) Whole() ([]byte, bool) {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.whole || !b.small || b.closed || b.late {
		return nil, false
	}
	p := b.chunks.all()
	b.read(len(p))
	_ = b.eof()
	return p, true
}

// eof is the end of the body; the trailer is there by then.
func (b *body) eof() error {
	for name := range b.st.req.Trailer {
		if v, ok := b.trailer[name]; ok {
			b.st.req.Trailer[name] = v
		}
	}
	return io.EOF
}

// Close says that nobody reads the rest.
func (b *body) Close() error {
	c := b.st.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	b.closed = true
	b.abandon()
	c.flush(b.st)
	return nil
}
