package h2

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2/hpack"
)

const (
	// StreamWindow is how much of a body a client may send before its handler reads it, and bodyWindow how much from then on.
	StreamWindow = 64 << 10
	bodyWindow   = 1 << 20
	// smallBody is the size up to which a body is collected before its handler starts.
	smallBody = 64 << 10
	// mostFragments bounds the frames that the head of one request is cut into.
	mostFragments = 64
	// lingering is how long the peer has to read why it was sent away.
	lingering = time.Second
	// evictedLingering is the same when its memory is needed.
	evictedLingering = 50 * time.Millisecond
)

// ConnectionWindow is how much of all bodies of a connection a client may send. Before a request of the connection is authenticated, that
// is only defaultWindow. It is more than what handlers that do not read yet can leave in it, all together: they may wait for one that
// reads, for example for memory that it holds, and must not take the window away from it.
func ConnectionWindow(streams int) int { return streams*StreamWindow + bodyWindow }

// conn is one connection.
type conn struct {
	*Config
	ctx     context.Context // ends with the connection
	handler http.Handler
	socket  net.Conn
	remote  string
	secured *tls.ConnectionState

	// These are the reader's alone.
	in       *bufio.Reader
	payload  []byte
	decoder  *hpack.Decoder
	head     *head
	names    names
	greeted  bool
	nuisance nuisance
	lastSeen uint32 // the highest stream that the client has opened; others read it under the lock

	mu      sync.Mutex // guards all that follows, and the streams
	streams map[uint32]*stream
	aborted [64]uint32   // streams that ended before their time, each at a place of its number
	running int          // handlers
	resting chan *stream // leads to a goroutine that has served and may serve again, whose stack has grown already; nil when there is none
	queue   []*stream    // requests that wait for a handler to end
	leaving bool         // no further requests are taken
	left    bool         // the last answer has been given
	// dismissed says that the client has broken the rules, and is told so.
	dismissed bool
	used      time.Time // when the last stream ended
	idle      *time.Timer
	watch     watchdog
	failed    error // why the connection is over; nil while it lives
	out       out
	upload    inflow // of all bodies

	owner         *connections // whose budgets it counts in; nil in tests that have none
	opened        time.Time
	authenticated atomic.Bool  // a request of it was
	evicted       atomic.Bool  // it is being closed for its memory
	counted       atomic.Int64 // what its budget knows that it holds
	closed        bool         // it has ended
	headers       int          // bytes of the headers of requests that wait or are served
	partialHeader int          // bytes of a header that comes in several frames
	unread        int          // bytes of bodies that were received and not read
	collecting    int          // those among them whose handlers have not started
	parked        int          // bytes of answers whose handlers have returned, and which the client does not take
}

func newConn(ctx context.Context, cfg *Config, socket net.Conn, state *tls.ConnectionState, handler http.Handler) *conn {
	c := &conn{
		Config: cfg, ctx: ctx, handler: handler, socket: socket, remote: socket.RemoteAddr().String(), secured: state,
		in: bufio.NewReaderSize(socket, 4<<10), names: names{}, streams: map[uint32]*stream{}, upload: inflow{room: defaultWindow, size: defaultWindow},
		opened: time.Now(),
	}
	c.nuisance.since = c.opened
	c.decoder = hpack.NewDecoder(defaultTable, func(f hpack.HeaderField) {
		if c.head.add(f, c.names); c.head.wide {
			c.decoder.SetEmitEnabled(false) // the rest of the block is read for the sake of the table only
		}
	})
	c.decoder.SetMaxStringLength(cfg.Header)
	c.out.init(&c.mu)
	c.out.bytes = appendSettings(c.out.bytes, choice{settingStreams, uint32(c.Streams)}, choice{settingFrame, smallestFrame},
		choice{settingHeaders, uint32(c.Header)}, choice{settingWindow, StreamWindow})
	return c
}

// run reads the connection until it ends.
func (c *conn) run() error {
	c.mu.Lock()
	c.used = time.Now()
	c.idle = time.AfterFunc(c.Idle, c.tire)
	c.account()
	c.call()
	c.mu.Unlock()

	err := c.admissible()
	if err == nil {
		err = c.read()
	}
	if c.evicted.Load() {
		err = breach(enhanceYourCalm, errEvicted.Error())
	}
	if b, ok := errors.AsType[*broken](err); ok {
		c.dismiss(b)
	}
	c.fail(err)
	c.idle.Stop()
	c.watch.stop()
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// admissible refuses connections whose TLS is weaker than HTTP/2 allows: RFC 9113, 9.2.2.
func (c *conn) admissible() error {
	if c.secured != nil && !SecureTLS(c.secured) {
		return breach(inadequateTLS, "HTTP/2 needs TLS 1.2 with an ECDHE and AEAD cipher suite, or TLS 1.3")
	}
	return nil
}

// SecureTLS tells whether the TLS of a connection is good enough for HTTP/2.
func SecureTLS(s *tls.ConnectionState) bool {
	return s.Version >= tls.VersionTLS13 || s.Version == tls.VersionTLS12 && slices.Contains(CipherSuites(), s.CipherSuite)
}

// CipherSuites are the suites of TLS 1.2 that HTTP/2 may use: those with a key exchange that forgets, and authenticated encryption.
func CipherSuites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}

// expect sets the time by which the client must have sent the next frame; the zero time is never. A connection that is about to end keeps
// the time that it has.
func (c *conn) expect(by time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.left && !c.evicted.Load() {
		_ = c.socket.SetReadDeadline(by)
	}
}

// read takes one frame after the other.
func (c *conn) read() error {
	c.expect(time.Now().Add(c.Greeting))
	hello := make([]byte, len(preface))
	if _, err := io.ReadFull(c.in, hello); err != nil {
		return err
	}
	if string(hello) != preface {
		return breach(protocolError, "the client does not greet")
	}
	for {
		f, p, err := c.frame()
		if err != nil {
			return err
		}
		if !c.greeted && (f.kind != frameSettings || f.has(flagAck)) {
			return breach(protocolError, "the client does not begin with its settings")
		}
		if err := c.take(f, p); err != nil {
			return err
		}
	}
}

// frame reads a frame. Its payload is good until the next one.
func (c *conn) frame() (frame, []byte, error) {
	b, err := c.in.Peek(headerSize)
	if err != nil {
		return frame{}, nil, err
	}
	f := readFrame(b)
	if f.size > smallestFrame {
		return f, nil, breach(frameSizeError, "a frame is too large")
	}
	_, _ = c.in.Discard(headerSize) // they are there
	if f.size <= c.in.Size() {      // read where they are
		p, err := c.in.Peek(f.size)
		if err == nil {
			_, err = c.in.Discard(f.size)
		}
		return f, p, err
	}
	if c.payload == nil {
		c.payload = make([]byte, smallestFrame)
	}
	p := c.payload[:f.size]
	_, err = io.ReadFull(c.in, p)
	return f, p, err
}

// take acts on a frame.
func (c *conn) take(f frame, p []byte) error {
	switch f.kind {
	case frameData:
		return c.takeData(f, p)
	case frameHeaders:
		return c.takeHeaders(f, p)
	case frameSettings:
		return c.takeSettings(f, p)
	case framePing:
		return c.takePing(f, p)
	case frameWindow:
		return c.takeWindow(f, p)
	case frameReset:
		return c.takeReset(f, p)
	case framePriority:
		if f.stream == 0 {
			return breach(protocolError, "a priority of no stream")
		}
		if err := c.nuisance.add(costOfFrame); err != nil {
			return err
		}
		return c.takePriority(f, p, len(p) == 5)
	case frameGoAway:
		if f.stream != 0 {
			return breach(protocolError, "a farewell on a stream")
		}
		if len(p) < 8 {
			return breach(frameSizeError, "a farewell of another size")
		}
		return c.nuisance.add(costOfFrame) // its requests are answered; it closes the connection itself
	case framePush, frameContinuation:
		return breach(protocolError, "a frame that has no place here")
	}
	return c.nuisance.add(costOfFrame)
}

// takePriority reads a priority, which nothing here heeds.
func (c *conn) takePriority(f frame, p []byte, whole bool) error {
	if !whole {
		return c.reset(f.stream, frameSizeError)
	}
	if binary.BigEndian.Uint32(p)&largestWindow == f.stream {
		return c.reset(f.stream, protocolError)
	}
	return nil
}

func (c *conn) takePing(f frame, p []byte) error {
	if len(p) != 8 {
		return breach(frameSizeError, "a ping of another size")
	}
	if f.stream != 0 {
		return breach(protocolError, "a ping on a stream")
	}
	if err := c.nuisance.add(costOfFrame); err != nil || f.has(flagAck) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.bytes = append(appendFrame(c.out.bytes, frame{size: 8, kind: framePing, flags: flagAck}), p...)
	return c.poke()
}

func (c *conn) takeSettings(f frame, p []byte) error {
	switch {
	case f.stream != 0:
		return breach(protocolError, "settings on a stream")
	case f.has(flagAck) && len(p) != 0, len(p)%6 != 0:
		return breach(frameSizeError, "settings of another size")
	case f.has(flagAck):
		return c.nuisance.add(costOfFrame)
	case len(p) > 6*mostSettings:
		return breach(enhanceYourCalm, "more settings in a frame than there are")
	}
	if err := c.nuisance.add(costOfSettings); err != nil {
		return err
	}
	if !c.greeted {
		c.greeted = true
		c.expect(time.Time{})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.out.initial
	for ; len(p) > 0; p = p[6:] {
		if err := c.set(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); err != nil {
			return err
		}
	}
	if err := c.shift(c.out.initial - before); err != nil {
		return err
	}
	c.out.bytes = appendFrame(c.out.bytes, frame{kind: frameSettings, flags: flagAck})
	return c.poke()
}

// set takes over a setting of the client.
func (c *conn) set(id uint16, value uint32) error {
	switch id {
	case settingPush:
		if value > 1 {
			return breach(protocolError, "a push setting that is neither yes nor no")
		}
	case settingTableSize:
		c.out.encoder.SetMaxDynamicTableSizeLimit(min(value, defaultTable))
		c.out.encoder.SetMaxDynamicTableSize(min(value, defaultTable))
	case settingFrame:
		if value < smallestFrame || value > largestFrame {
			return breach(protocolError, "a frame size that cannot be")
		}
		c.out.frame = min(int(value), largestPiece)
	case settingWindow:
		if value > largestWindow {
			return breach(flowControlError, "a window that cannot be")
		}
		c.out.initial = int64(value)
	}
	return nil
}

// shift changes the windows of all streams by what the initial window has changed. The lock is held.
func (c *conn) shift(by int64) error {
	if by == 0 {
		return nil
	}
	for _, st := range c.streams {
		if st.window += by; st.window > largestWindow {
			return breach(flowControlError, "a window overflows")
		}
		if st.window > 0 {
			st.wake()
		}
	}
	return nil
}

func (c *conn) takeWindow(f frame, p []byte) error {
	if len(p) != 4 {
		return breach(frameSizeError, "a window of another size")
	}
	more := int64(binary.BigEndian.Uint32(p) & largestWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unopened(f.stream) {
		return breach(protocolError, "a window of a stream that is not open")
	}
	if f.stream == 0 {
		if c.out.window += more; more == 0 || c.out.window > largestWindow {
			return breach(windowCode(more), "a window grows by nothing, or too much")
		}
		c.pass()
		return nil
	}
	st := c.streams[f.stream]
	if st == nil {
		return nil // it has ended meanwhile
	}
	if st.window += more; more == 0 || st.window > largestWindow {
		c.abort(st, windowCode(more))
		return c.poke()
	}
	if st.window > 0 {
		st.wake()
	}
	return nil
}

func windowCode(more int64) code {
	if more == 0 {
		return protocolError
	}
	return flowControlError
}

func (c *conn) takeReset(f frame, p []byte) error {
	if len(p) != 4 {
		return breach(frameSizeError, "a reset of another size")
	}
	if err := c.nuisance.add(costOfReset); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.stream == 0 || c.unopened(f.stream) {
		return breach(protocolError, "a reset of a stream that is not open")
	}
	if st := c.streams[f.stream]; st != nil {
		c.drop(st, errReset)
	}
	return c.poke()
}

// unopened tells whether the client has not opened a stream yet. Those that it opened after it was told to leave are not kept, and not
// held against it.
func (c *conn) unopened(id uint32) bool { return id > c.lastSeen && !c.leaving }

// errReset is what a handler learns when its client has given up.
var errReset = errors.New("the client has ended the request")

// reset ends a stream that need not be known, for a fault of the client.
func (c *conn) reset(id uint32, why code) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[id]; st != nil {
		c.abort(st, why)
		return c.poke()
	}
	return c.refuse(id, why)
}

// refuse says that a stream has ended. The lock is held.
func (c *conn) refuse(id uint32, why code) error {
	c.out.bytes = appendReset(c.out.bytes, id, why)
	c.aborted[id/2%uint32(len(c.aborted))] = id
	return c.poke()
}

// abort ends a stream and says so. The lock is held.
func (c *conn) abort(st *stream, why code) {
	_ = c.refuse(st.id, why) // who called it looks whether that is too much
	c.drop(st, errReset)
}

// lately tells whether a stream is among the last that were ended from this side, of which the client may not know yet.
func (c *conn) lately(id uint32) bool { return c.aborted[id/2%uint32(len(c.aborted))] == id }

// tire closes the connection when it has had no request for long.
func (c *conn) tire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return
	}
	if rest := c.Idle - time.Since(c.used); len(c.streams) > 0 || rest > 0 {
		c.idle.Reset(max(rest, c.Idle/8))
		return
	}
	c.farewell()
}

// leave asks the client to send no more requests, and closes the connection after the last answer.
func (c *conn) leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.farewell()
}

func (c *conn) farewell() {
	if c.leaving || c.failed != nil {
		return
	}
	c.leaving = true
	c.out.bytes = appendGoAway(c.out.bytes, c.lastSeen, noError, "")
	c.call()
}

// dismiss tells the client what it did wrong, and waits a moment, so that it can read that before its connection is gone.
func (c *conn) dismiss(b *broken) {
	c.mu.Lock()
	c.out.bytes = appendGoAway(c.out.bytes, c.lastSeen, b.code, b.text)
	c.leaving, c.dismissed = true, true
	c.call()
	c.mu.Unlock()
	rest := lingering
	if c.evicted.Load() {
		rest = evictedLingering
	}
	_ = c.socket.SetDeadline(time.Now().Add(rest))
	_, _ = io.CopyN(io.Discard, c.in, 1<<20)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.failed == nil && (c.out.called || c.out.writing) {
		c.out.room.Wait() // it was told, or the time to tell it is over
	}
}

// fail ends the connection for all that still use it.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.over(err)
}

func (c *conn) over(err error) {
	if c.failed != nil {
		return
	}
	c.failed = err
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // or a handler would take the part of a body that has come for the whole
	}
	for _, st := range c.streams {
		c.drop(st, err)
	}
	c.queue = nil
	if c.resting != nil {
		close(c.resting)
		c.resting = nil
	}
	c.out.room.Broadcast()
	_ = c.socket.SetDeadline(time.Unix(1, 0)) // whoever reads or writes it learns; who has opened it closes it
}
