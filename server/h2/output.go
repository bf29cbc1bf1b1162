package h2

import (
	"bytes"
	"sync"
	"time"

	"proa.dev/server/h2/h2wire"
)

const (
	// outputLimit is how many bytes may wait to be sent before handlers have to wait.
	outputLimit = 256 << 10
	// replyLimit is how many bytes may wait when the client causes them itself: PING replies, resets and the like.
	replyLimit = 1 << 20
	// maxSpareBuffer is the largest buffer that is kept for reuse, and maxIdleBuffer the largest that a connection
	// without requests keeps.
	maxSpareBuffer = 512 << 10
	maxIdleBuffer  = 8 << 10
	// maxDataFrame is the largest DATA frame that is sent, even if the peer accepts larger ones, so that responses take
	// turns.
	maxDataFrame = 64 << 10
	// writeTimeout is how long a peer may take to accept one write before the connection is closed.
	writeTimeout = 2 * time.Minute
	// The limits of a connection on which no request has been authenticated.
	unauthenticatedOutputLimit  = 32 << 10
	unauthenticatedReplyLimit   = 256 << 10
	unauthenticatedWriteTimeout = 15 * time.Second
	// maxRounds is how often a handler sends what others have added to the output buffer, before it goes on with its
	// own work.
	maxRounds = 8
)

// output is what waits to be sent to the peer. The lock of its connection guards it.
type output struct {
	bytes         []byte     // frames that wait to be sent
	writing       bool       // a goroutine is writing to the socket, and will send what is added
	writerStarted bool       // a goroutine was started that will write
	sending       int        // size of the buffer that is being written
	sender        *stream    // whose handler is writing; nil when nobody is, or a goroutine started for it
	hasRoom       *sync.Cond // signals that there is room in the buffer again
	spare         []byte     // a buffer for reuse
	sent          int64      // how many bytes the socket has accepted
	dequeued      int64      // how many bytes have left the buffer to be written
	dataEnd       int64      // when sent reaches this, the socket has accepted all DATA frames so far

	window        int64     // the flow-control window of the connection
	waiting       []*stream // streams that wait for that window, first come first served
	initialWindow int64     // the window of a new stream
	maxFrame      int       // the largest frame that the peer accepts

	encoder *h2wire.Encoder
}

func (o *output) init(mu *sync.Mutex) {
	o.hasRoom = sync.NewCond(mu)
	o.window, o.initialWindow, o.maxFrame = h2wire.DefaultWindow, h2wire.DefaultWindow, h2wire.SmallestFrame
	o.encoder = h2wire.NewEncoder()
}

// writePending writes the output buffer to the socket, unless another goroutine does already. The lock is held, except
// during the write itself.
func (c *conn) writePending() {
	o := &c.out
	if o.writing {
		return
	}
	o.writing = true
	for round := 0; len(o.bytes) > 0 && c.failed == nil; round++ {
		if round == maxRounds {
			o.writing = false
			c.startWriter()
			return
		}
		full := o.bytes
		o.bytes, o.spare = o.spare, nil
		o.dequeued += int64(len(full))
		o.sending = cap(full)
		c.account()
		rest := c.writeSocket(full)
		o.sending = 0
		if len(rest) > 0 && c.failed == nil { // the stream of the handler that writes has ended
			o.dequeued -= int64(len(rest))
			o.bytes = append(bytes.Clone(rest), o.bytes...)
			o.writing = false
			c.startWriter()
			return
		}
		if cap(full) <= maxSpareBuffer && !c.closed {
			o.spare = full[:0]
		}
		o.hasRoom.Broadcast()
	}
	o.writing = false
	o.hasRoom.Broadcast()
	c.account()
	if len(c.streams) == 0 {
		c.settle()
	}
}

// flush is writePending for a handler. On a connection on which no request has been authenticated, the handler does not
// wait for the socket: the client need not read, and the handler may hold what others wait for.
func (c *conn) flush(st *stream) {
	if !c.authenticated.Load() {
		c.startWriter()
		return
	}
	if c.out.writing {
		return
	}
	c.out.sender = st
	c.writePending()
	if c.out.sender == st {
		c.out.sender = nil
	}
}

// writeSocket writes p to the socket. It returns the part that it has not written because the stream of the writing
// handler has ended. The lock is held, except during the writes.
func (c *conn) writeSocket(p []byte) []byte {
	for len(p) > 0 && c.failed == nil {
		if st := c.out.sender; st != nil && st.failed != nil {
			return p
		}
		n, patience := min(len(p), maxDataFrame), writeTimeout
		switch {
		case c.faulted:
			patience = closeTimeout
		case !c.authenticated.Load():
			patience = unauthenticatedWriteTimeout
		}
		_ = c.socket.SetWriteDeadline(time.Now().Add(patience))
		c.mu.Unlock()
		_, err := c.socket.Write(p[:n])
		c.mu.Lock()
		if err != nil {
			c.failLocked(err)
		}
		c.out.sent += int64(n)
		p = p[n:]
	}
	return nil
}

// settle frees memory when the connection has no requests left, and closes it if it is shutting down.
func (c *conn) settle() {
	if cap(c.out.bytes) > maxIdleBuffer {
		c.out.bytes = nil
	}
	if cap(c.out.spare) > maxIdleBuffer {
		c.out.spare = nil
	}
	if c.faulted || c.evicted.Load() {
		return // its reading goroutine closes it
	}
	if c.goingAway && !c.drained && c.failed == nil {
		c.drained = true
		if half, ok := c.socket.(interface{ CloseWrite() error }); ok {
			go func() { _ = half.CloseWrite() }() // it fails when the client has disconnected
		}
		_ = c.socket.SetReadDeadline(time.Now().Add(closeTimeout))
	}
}

// startWriter has the output buffer written by a goroutine of its own, unless one writes already or was started.
func (c *conn) startWriter() {
	o := &c.out
	ends := c.goingAway && len(c.streams) == 0
	if idle := len(o.bytes) == 0 && !ends; idle || o.writing || o.writerStarted {
		return
	}
	o.writerStarted = true
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.writerStarted = false
		c.writePending()
	}()
}

// flushFromReader is startWriter for the reading goroutine, which must not wait for the peer to read. It returns an
// error when the peer makes this side send more than it reads.
func (c *conn) flushFromReader() error {
	c.account()
	c.startWriter()
	if most := c.replyLimit(); len(c.out.bytes) > most {
		return h2wire.NewError(h2wire.EnhanceYourCalm, "more to send than the client reads")
	}
	return nil
}

// waitForRoom waits until there is room in the output buffer. It is false when the stream has ended. The lock is held,
// but not while it waits.
func (c *conn) waitForRoom(st *stream) bool {
	since := st.stalled
	for st.failed == nil && c.isFull() {
		if c.flush(st); c.isFull() && (c.out.writing || c.out.writerStarted) {
			c.markStalled(st)
			c.out.hasRoom.Wait()
		}
	}
	st.stalled = since
	return st.failed == nil
}

// isFull reports whether handlers have to wait before they add to the output buffer. The lock is held.
func (c *conn) isFull() bool {
	if c.authenticated.Load() {
		return len(c.out.bytes) > outputLimit
	}
	return len(c.out.bytes) > unauthenticatedOutputLimit
}

// replyLimit returns how many bytes of frames that the client has caused may wait.
func (c *conn) replyLimit() int {
	if c.authenticated.Load() {
		return replyLimit
	}
	return unauthenticatedReplyLimit
}

// sendData sends a piece of a response body, with END_STREAM if it is the last. It waits until flow control allows it.
// The lock is held, but not while it waits.
func (c *conn) sendData(st *stream, p []byte, last bool) error {
	o := &c.out
	for {
		if !c.waitForRoom(st) {
			c.wakeNextWaiting()
			return st.failed
		}
		n := int(max(0, min(int64(len(p)), o.window, st.window, int64(o.maxFrame))))
		if n == 0 && len(p) > 0 {
			if len(o.bytes) > 0 && !o.writing {
				if c.flush(st); c.authenticated.Load() {
					continue // the window may have changed
				}
			}
			c.wakeNextWaiting()
			c.awaitWindow(st)
			continue
		}
		f := h2wire.Frame{Size: n, Type: h2wire.FrameData, Stream: st.id}
		if last && n == len(p) {
			f.Flags = h2wire.FlagEndStream
		}
		o.bytes = append(h2wire.AppendFrame(o.bytes, f), p[:n]...)
		o.window -= int64(n)
		st.window -= int64(n)
		o.dataEnd = o.dequeued + int64(len(o.bytes))
		st.dataEnd, st.stalled = o.dataEnd, time.Time{}
		if p = p[n:]; len(p) == 0 {
			c.wakeNextWaiting()
			return nil
		}
		if len(o.waiting) > 0 && o.window > 0 { // streams that waited before take their turn
			c.wakeNextWaiting()
			c.awaitWindow(st)
		}
	}
}
