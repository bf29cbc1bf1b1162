package h2

import (
	"bytes"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2/hpack"
)

const (
	// outFull is how much may wait to be sent before those who send have to wait.
	outFull = 256 << 10
	// outFlooded is how much of what a client has provoked may wait: pongs, resets and the like.
	outFlooded = 1 << 20
	// keptBuffer is the largest buffer that is kept for later, and idleBuffer the largest that a connection without requests keeps.
	keptBuffer = 512 << 10
	idleBuffer = 8 << 10
	// largestPiece is the largest frame of an answer, whatever the peer takes, so that answers take turns.
	largestPiece = 64 << 10
	// stuck is how long a peer may take none of a piece before it is given up.
	stuck = 2 * time.Minute
	// strangerOutFull, strangerFlooded and strangerStuck are the same of a connection on which no request has been authenticated.
	strangerOutFull = 32 << 10
	strangerFlooded = 256 << 10
	strangerStuck   = 15 * time.Second
	// mostRounds is how often a handler sends what others have added, before it goes on with its own work.
	mostRounds = 8
)

// out is what goes to the peer. The lock of its connection guards it.
type out struct {
	bytes   []byte     // frames that wait to be sent
	writing bool       // somebody is sending, and will send what is added
	called  bool       // somebody is about to
	sending int        // how much is being sent
	sender  *stream    // whose handler is sending; nil when nobody is, or a goroutine of its own
	room    *sync.Cond // there is room again
	spare   []byte     // a buffer for later
	sent    int64      // how many bytes the socket has taken
	taken   int64      // how many bytes have left the buffer to be sent
	data    int64      // sent is at least this when the socket has taken all pieces of answers

	window   int64     // what the peer takes of all streams
	starving []*stream // those that wait for that window, in order
	initial  int64     // what it takes of a new one
	frame    int       // its largest frame

	encoder *hpack.Encoder
	block   bytes.Buffer // of the encoder
	lower   map[string]string
	date    string // the time of the answers of one second
	second  int64
}

func (o *out) init(mu *sync.Mutex) {
	o.room = sync.NewCond(mu)
	o.window, o.initial, o.frame = defaultWindow, defaultWindow, smallestFrame
	o.encoder = hpack.NewEncoder(&o.block)
	o.lower = map[string]string{}
}

// push sends what waits, unless somebody does already. The lock is held, but not while the socket is written to.
func (c *conn) push() {
	o := &c.out
	if o.writing {
		return
	}
	o.writing = true
	for round := 0; len(o.bytes) > 0 && c.failed == nil; round++ {
		if round == mostRounds {
			o.writing = false
			c.call()
			return
		}
		full := o.bytes
		o.bytes, o.spare = o.spare, nil
		o.taken += int64(len(full))
		o.sending = cap(full)
		c.account()
		rest := c.send(full)
		o.sending = 0
		if len(rest) > 0 && c.failed == nil { // the time of the handler that sends is over
			o.taken -= int64(len(rest))
			o.bytes = append(bytes.Clone(rest), o.bytes...)
			o.writing = false
			c.call()
			return
		}
		if cap(full) <= keptBuffer && !c.closed {
			o.spare = full[:0]
		}
		o.room.Broadcast()
	}
	o.writing = false
	o.room.Broadcast()
	c.account()
	if len(c.streams) == 0 {
		c.settle()
	}
}

// flush is push for a handler. That of a connection on which no request has been authenticated does not wait for the socket: its client
// need not read, and the handler may have what others wait for.
func (c *conn) flush(st *stream) {
	if !c.authenticated.Load() {
		c.call()
		return
	}
	if c.out.writing {
		return
	}
	c.out.sender = st
	c.push()
	if c.out.sender == st {
		c.out.sender = nil
	}
}

// send writes to the socket, and returns what it has not written because the stream of the handler that sends has ended. The lock is held,
// but not while it writes.
func (c *conn) send(p []byte) []byte {
	for len(p) > 0 && c.failed == nil {
		if st := c.out.sender; st != nil && st.failed != nil {
			return p
		}
		n, patience := min(len(p), largestPiece), stuck
		switch {
		case c.dismissed:
			patience = lingering
		case !c.authenticated.Load():
			patience = strangerStuck
		}
		_ = c.socket.SetWriteDeadline(time.Now().Add(patience))
		c.mu.Unlock()
		_, err := c.socket.Write(p[:n])
		c.mu.Lock()
		if err != nil {
			c.over(err)
		}
		c.out.sent += int64(n)
		p = p[n:]
	}
	return nil
}

// settle gives memory back when the connection has nothing to do, and closes it when it was told to end.
func (c *conn) settle() {
	if cap(c.out.bytes) > idleBuffer {
		c.out.bytes = nil
	}
	if cap(c.out.spare) > idleBuffer {
		c.out.spare = nil
	}
	if c.dismissed || c.evicted.Load() {
		return // its reader closes it
	}
	if c.leaving && !c.left && c.failed == nil {
		c.left = true
		if half, ok := c.socket.(interface{ CloseWrite() error }); ok {
			go half.CloseWrite() //nolint:errcheck // it fails when the client has gone
		}
		_ = c.socket.SetReadDeadline(time.Now().Add(lingering))
	}
}

// call has what waits sent by a goroutine of its own, unless somebody sends it already, or is about to.
func (c *conn) call() {
	o := &c.out
	ends := c.leaving && len(c.streams) == 0
	if idle := len(o.bytes) == 0 && !ends; idle || o.writing || o.called {
		return
	}
	o.called = true
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.called = false
		c.push()
	}()
}

// poke is call for the reader, which must not wait for the peer to read. A peer that makes it send and does not read is too much.
func (c *conn) poke() error {
	c.account()
	c.call()
	if most := c.flooded(); len(c.out.bytes) > most {
		return breach(enhanceYourCalm, "more to send than the client reads")
	}
	return nil
}

// wait waits until there is room to send more. It is false when the stream has ended. The lock is held, but not all the time.
func (c *conn) wait(st *stream) bool {
	since := st.stalled
	for st.failed == nil && c.full() {
		if c.flush(st); c.full() && (c.out.writing || c.out.called) {
			c.stalls(st)
			c.out.room.Wait()
		}
	}
	st.stalled = since
	return st.failed == nil
}

// full tells whether those who send have to wait. The lock is held.
func (c *conn) full() bool {
	if c.authenticated.Load() {
		return len(c.out.bytes) > outFull
	}
	return len(c.out.bytes) > strangerOutFull
}

// flooded is how much of what a client has provoked may wait.
func (c *conn) flooded() int {
	if c.authenticated.Load() {
		return outFlooded
	}
	return strangerFlooded
}

// fields encodes the fields of an answer. The bytes are good until the next call.
func (o *out) fields(status string, h http.Header, skip map[string]bool) []byte {
	o.block.Reset()
	if status != "" {
		o.field(":status", status)
	}
	for key, values := range h {
		if skip[key] {
			continue
		}
		name := o.name(key)
		if name == "" {
			continue
		}
		for _, v := range values {
			if httpguts.ValidHeaderFieldValue(v) {
				o.field(name, v)
			}
		}
	}
	return o.block.Bytes()
}

// field encodes one field. What is different in every answer is not worth a place in the table that both sides keep.
func (o *out) field(name, value string) {
	unique := name == "audit-id" || name == "content-length" || name == "warning"
	_ = o.encoder.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: unique}) // into memory
}

// name is the form that a field has on the wire; empty for what is none, or has no place there.
func (o *out) name(key string) string {
	if lower, ok := o.lower[key]; ok {
		return lower
	}
	lower := ""
	switch key {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade":
	default:
		if httpguts.ValidHeaderFieldName(key) {
			lower = string(bytes.ToLower([]byte(key)))
		}
	}
	if len(o.lower) < mostNames && len(key) <= longestName {
		o.lower[key] = lower
	}
	return lower
}

// now is the time as answers have it.
func (o *out) now() string {
	t := time.Now()
	if s := t.Unix(); s != o.second {
		o.second, o.date = s, t.UTC().Format(http.TimeFormat)
	}
	return o.date
}

// sendData sends a piece of a body, with the end of the stream if it is the last. It waits until the peer takes it. The lock is held,
// but not all the time.
func (c *conn) sendData(st *stream, p []byte, last bool) error {
	o := &c.out
	for {
		if !c.wait(st) {
			c.pass()
			return st.failed
		}
		n := int(max(0, min(int64(len(p)), o.window, st.window, int64(o.frame))))
		if n == 0 && len(p) > 0 {
			if len(o.bytes) > 0 && !o.writing {
				if c.flush(st); c.authenticated.Load() {
					continue // the window may be another now
				}
			}
			c.pass()
			c.awaitWindow(st)
			continue
		}
		f := frame{size: n, kind: frameData, stream: st.id}
		if last && n == len(p) {
			f.flags = flagEndStream
		}
		o.bytes = append(appendFrame(o.bytes, f), p[:n]...)
		o.window -= int64(n)
		st.window -= int64(n)
		o.data = o.taken + int64(len(o.bytes))
		st.data, st.stalled = o.data, time.Time{}
		if p = p[n:]; len(p) == 0 {
			c.pass()
			return nil
		}
		if len(o.starving) > 0 && o.window > 0 { // others were first
			c.pass()
			c.awaitWindow(st)
		}
	}
}
