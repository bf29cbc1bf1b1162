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

	"proa.dev/internal/connlimit"
	"proa.dev/server/h2/h2wire"
)

const (
	// StreamWindow is the flow-control window of a request body before its handler reads it, and bodyWindow the window
	// from then on.
	StreamWindow = 64 << 10
	bodyWindow   = 1 << 20
	// smallBody is the size up to which a request body is collected before its handler starts.
	smallBody = 64 << 10
	// maxFragments is the number of HEADERS and CONTINUATION frames that the header of one request may consist of.
	maxFragments = 64
	// closeTimeout is how long a peer has to read the GOAWAY frame that says why its connection is closed.
	closeTimeout = time.Second
	// evictedCloseTimeout is the same for a connection that is closed because its memory is needed.
	evictedCloseTimeout = 50 * time.Millisecond
)

// ConnectionWindow returns the flow-control window of a connection, for all request bodies together, once a request of
// it has been authenticated; before that it is DefaultWindow. It is larger than everything that handlers which do not
// read yet can leave in it: such handlers may wait for one that reads, for example for memory that it holds, and must
// not take the window away from it.
func ConnectionWindow(streams int) int { return streams*StreamWindow + bodyWindow }

// conn is one HTTP/2 connection.
type conn struct {
	*Config
	ctx     context.Context // ends with the connection
	handler http.Handler
	socket  net.Conn
	remote  string
	secured *tls.ConnectionState
	limited *connlimit.Conn // counts the connection among those of the process; nil if nobody does

	// These belong to the reading goroutine alone.
	in               *bufio.Reader
	payload          []byte
	decoder          *hpack.Decoder
	header           *h2wire.HeaderList
	nameCache        h2wire.NameCache
	settingsReceived bool
	abuse            abuseCounter
	lastStream       uint32 // the highest stream that the client has opened; others read it with mu held

	mu           sync.Mutex // guards everything that follows, and the streams
	streams      map[uint32]*stream
	recentResets [64]uint32 // streams that this side has reset lately, each at an index made from its number
	running      int        // the number of handlers
	// idleWorker hands a stream to a goroutine that has finished a handler and may run the next one, because its stack
	// has grown already; nil if there is none.
	idleWorker chan *stream
	queue      []*stream // requests that wait for a running handler to end
	goingAway  bool      // a GOAWAY frame has been queued; no further requests are accepted
	drained    bool      // the last response has been sent, and the connection is closing
	// faulted says that the client has violated the protocol and is being told so.
	faulted  bool
	lastUsed time.Time // when the last stream ended
	idle     *time.Timer
	watchdog watchdog
	failed   error // why the connection has ended; nil while it is open
	out      output
	bodies   receiveWindow // of all request bodies together

	owner         *connections // the set whose budgets it counts in; nil in tests that have none
	opened        time.Time
	authenticated atomic.Bool  // a request of the connection has been authenticated
	evicted       atomic.Bool  // it is being closed to free memory
	counted       atomic.Int64 // the bytes that its budget knows of
	closed        bool         // it has ended
	headers       int          // bytes of the headers of requests that wait or are being served
	partialHeader int          // bytes of a header that comes in several frames
	unread        int          // bytes of request bodies that were received and not read
	collecting    int          // those of them whose handlers have not started
	parked        int          // bytes of responses whose handlers have returned while the client does not read them
}

func newConn(ctx context.Context, cfg *Config, socket net.Conn, state *tls.ConnectionState, handler http.Handler) *conn {
	c := &conn{
		Config: cfg, ctx: ctx, handler: handler, socket: socket, remote: socket.RemoteAddr().String(), secured: state,
		in: bufio.NewReaderSize(socket, 4<<10), nameCache: h2wire.NameCache{}, streams: map[uint32]*stream{},
		bodies: receiveWindow{room: h2wire.DefaultWindow, size: h2wire.DefaultWindow},
		opened: time.Now(), limited: connlimit.Of(socket),
	}
	c.abuse.since = c.opened
	c.decoder = hpack.NewDecoder(h2wire.DefaultTableSize, func(f hpack.HeaderField) {
		if c.header.Add(f, c.nameCache); c.header.TooLarge {
			c.decoder.SetEmitEnabled(false) // the rest of the block is decoded only to keep the HPACK table in step
		}
	})
	c.decoder.SetMaxStringLength(cfg.Header)
	c.out.init(&c.mu)
	c.out.bytes = h2wire.AppendSettings(c.out.bytes,
		h2wire.Setting{ID: h2wire.SettingStreams, Value: uint32(c.Streams)},
		h2wire.Setting{ID: h2wire.SettingFrame, Value: h2wire.SmallestFrame},
		h2wire.Setting{ID: h2wire.SettingHeaders, Value: uint32(c.Header)},
		h2wire.Setting{ID: h2wire.SettingWindow, Value: StreamWindow})
	return c
}

// run reads frames until the connection ends.
func (c *conn) run() error {
	c.mu.Lock()
	c.lastUsed = time.Now()
	c.idle = time.AfterFunc(c.Idle, c.closeIfIdle)
	c.account()
	c.startWriter()
	c.mu.Unlock()

	err := c.checkTLS()
	if err == nil {
		err = c.readFrames()
	}
	if c.evicted.Load() {
		err = h2wire.NewError(h2wire.EnhanceYourCalm, errEvicted.Error())
	}
	if b, ok := errors.AsType[*h2wire.ConnectionError](err); ok {
		c.closeWithError(b)
	}
	c.fail(err)
	c.idle.Stop()
	c.watchdog.stop()
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// checkTLS rejects connections whose TLS is weaker than HTTP/2 allows (RFC 9113, section 9.2.2).
func (c *conn) checkTLS() error {
	if c.secured != nil && !SecureTLS(c.secured) {
		return h2wire.NewError(h2wire.InadequateTLS, "HTTP/2 needs TLS 1.2 with an ECDHE and AEAD cipher suite, or TLS 1.3")
	}
	return nil
}

// SecureTLS reports whether the TLS of a connection is strong enough for HTTP/2.
func SecureTLS(s *tls.ConnectionState) bool {
	return s.Version >= tls.VersionTLS13 || s.Version == tls.VersionTLS12 && slices.Contains(CipherSuites(), s.CipherSuite)
}

// CipherSuites returns the TLS 1.2 cipher suites that HTTP/2 may use: those with forward secrecy and authenticated
// encryption.
func CipherSuites() []uint16 {
	return []uint16{
		tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
		tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
		tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
	}
}

// setReadDeadline sets the time by which the client must have sent the next frame; the zero time means no deadline. A
// connection that is about to end keeps its deadline.
func (c *conn) setReadDeadline(by time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained && !c.evicted.Load() {
		_ = c.socket.SetReadDeadline(by)
	}
}

// readFrames reads the connection preface and then handles one frame after the other.
func (c *conn) readFrames() error {
	c.setReadDeadline(time.Now().Add(c.Greeting))
	hello := make([]byte, len(h2wire.Preface))
	if _, err := io.ReadFull(c.in, hello); err != nil {
		return err
	}
	if string(hello) != h2wire.Preface {
		return h2wire.NewError(h2wire.ProtocolError, "the connection preface is missing")
	}
	for {
		f, p, err := c.readFrame()
		if err != nil {
			return err
		}
		if !c.settingsReceived && (f.Type != h2wire.FrameSettings || f.Has(h2wire.FlagAck)) {
			return h2wire.NewError(h2wire.ProtocolError, "the first frame is not SETTINGS")
		}
		if err := c.handleFrame(f, p); err != nil {
			return err
		}
	}
}

// readFrame reads one frame. Its payload is valid until the next call.
func (c *conn) readFrame() (h2wire.Frame, []byte, error) {
	b, err := c.in.Peek(h2wire.FrameHeaderSize)
	if err != nil {
		return h2wire.Frame{}, nil, err
	}
	f := h2wire.ParseFrame(b)
	if f.Size > h2wire.SmallestFrame {
		return f, nil, h2wire.NewError(h2wire.FrameSizeError, "a frame is too large")
	}
	_, _ = c.in.Discard(h2wire.FrameHeaderSize) // Peek has returned them
	if f.Size <= c.in.Size() {                  // no copy is needed
		p, err := c.in.Peek(f.Size)
		if err == nil {
			_, err = c.in.Discard(f.Size)
		}
		return f, p, err
	}
	if c.payload == nil {
		c.payload = make([]byte, h2wire.SmallestFrame)
	}
	p := c.payload[:f.Size]
	_, err = io.ReadFull(c.in, p)
	return f, p, err
}

// handleFrame acts on a frame that was received.
func (c *conn) handleFrame(f h2wire.Frame, p []byte) error {
	switch f.Type {
	case h2wire.FrameData:
		return c.handleData(f, p)
	case h2wire.FrameHeaders:
		return c.handleHeaders(f, p)
	case h2wire.FrameSettings:
		return c.handleSettings(f, p)
	case h2wire.FramePing:
		return c.handlePing(f, p)
	case h2wire.FrameWindow:
		return c.handleWindowUpdate(f, p)
	case h2wire.FrameReset:
		return c.handleReset(f, p)
	case h2wire.FramePriority:
		if f.Stream == 0 {
			return h2wire.NewError(h2wire.ProtocolError, "PRIORITY on stream 0")
		}
		if err := c.abuse.add(costOfFrame); err != nil {
			return err
		}
		return c.handlePriority(f, p, len(p) == 5)
	case h2wire.FrameGoAway:
		if f.Stream != 0 {
			return h2wire.NewError(h2wire.ProtocolError, "GOAWAY on a stream")
		}
		if len(p) < 8 {
			return h2wire.NewError(h2wire.FrameSizeError, "GOAWAY of a wrong size")
		}
		return c.abuse.add(costOfFrame) // its requests are answered; the client closes the connection itself
	case h2wire.FramePush, h2wire.FrameContinuation:
		return h2wire.NewError(h2wire.ProtocolError, "PUSH_PROMISE or CONTINUATION in a wrong place")
	}
	return c.abuse.add(costOfFrame)
}

// handlePriority checks a priority. Priorities have no effect here.
func (c *conn) handlePriority(f h2wire.Frame, p []byte, whole bool) error {
	if !whole {
		return c.resetByID(f.Stream, h2wire.FrameSizeError)
	}
	if binary.BigEndian.Uint32(p)&h2wire.LargestWindow == f.Stream {
		return c.resetByID(f.Stream, h2wire.ProtocolError)
	}
	return nil
}

func (c *conn) handlePing(f h2wire.Frame, p []byte) error {
	if len(p) != 8 {
		return h2wire.NewError(h2wire.FrameSizeError, "PING of a wrong size")
	}
	if f.Stream != 0 {
		return h2wire.NewError(h2wire.ProtocolError, "PING on a stream")
	}
	if err := c.abuse.add(costOfFrame); err != nil || f.Has(h2wire.FlagAck) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.out.bytes = append(h2wire.AppendFrame(c.out.bytes, h2wire.Frame{Size: 8, Type: h2wire.FramePing, Flags: h2wire.FlagAck}), p...)
	return c.flushFromReader()
}

func (c *conn) handleSettings(f h2wire.Frame, p []byte) error {
	switch {
	case f.Stream != 0:
		return h2wire.NewError(h2wire.ProtocolError, "SETTINGS on a stream")
	case f.Has(h2wire.FlagAck) && len(p) != 0, len(p)%6 != 0:
		return h2wire.NewError(h2wire.FrameSizeError, "SETTINGS of a wrong size")
	case f.Has(h2wire.FlagAck):
		return c.abuse.add(costOfFrame)
	case len(p) > 6*maxSettings:
		return h2wire.NewError(h2wire.EnhanceYourCalm, "too many settings in a frame")
	}
	if err := c.abuse.add(costOfSettings); err != nil {
		return err
	}
	if !c.settingsReceived {
		c.settingsReceived = true
		c.setReadDeadline(time.Time{})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.out.initialWindow
	for ; len(p) > 0; p = p[6:] {
		if err := c.applySetting(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); err != nil {
			return err
		}
	}
	if err := c.shiftWindows(c.out.initialWindow - before); err != nil {
		return err
	}
	c.out.bytes = h2wire.AppendFrame(c.out.bytes, h2wire.Frame{Type: h2wire.FrameSettings, Flags: h2wire.FlagAck})
	return c.flushFromReader()
}

// applySetting applies one setting of the client.
func (c *conn) applySetting(id uint16, value uint32) error {
	switch id {
	case h2wire.SettingPush:
		if value > 1 {
			return h2wire.NewError(h2wire.ProtocolError, "SETTINGS_ENABLE_PUSH is neither 0 nor 1")
		}
	case h2wire.SettingTableSize:
		c.out.encoder.SetTableSize(value)
	case h2wire.SettingFrame:
		if value < h2wire.SmallestFrame || value > h2wire.LargestFrame {
			return h2wire.NewError(h2wire.ProtocolError, "SETTINGS_MAX_FRAME_SIZE is out of range")
		}
		c.out.maxFrame = min(int(value), maxDataFrame)
	case h2wire.SettingWindow:
		if value > h2wire.LargestWindow {
			return h2wire.NewError(h2wire.FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE is out of range")
		}
		c.out.initialWindow = int64(value)
	}
	return nil
}

// shiftWindows changes the windows of all streams by the change of the initial window. The lock is held.
func (c *conn) shiftWindows(by int64) error {
	if by == 0 {
		return nil
	}
	for _, st := range c.streams {
		if st.window += by; st.window > h2wire.LargestWindow {
			return h2wire.NewError(h2wire.FlowControlError, "a window overflows")
		}
		if st.window > 0 {
			st.wake()
		}
	}
	return nil
}

func (c *conn) handleWindowUpdate(f h2wire.Frame, p []byte) error {
	if len(p) != 4 {
		return h2wire.NewError(h2wire.FrameSizeError, "WINDOW_UPDATE of a wrong size")
	}
	more := int64(binary.BigEndian.Uint32(p) & h2wire.LargestWindow)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isUnopened(f.Stream) {
		return h2wire.NewError(h2wire.ProtocolError, "WINDOW_UPDATE of a stream that is not open")
	}
	if f.Stream == 0 {
		if c.out.window += more; more == 0 || c.out.window > h2wire.LargestWindow {
			return h2wire.NewError(windowErrorCode(more), "WINDOW_UPDATE by zero, or beyond the limit")
		}
		c.wakeNextWaiting()
		return nil
	}
	st := c.streams[f.Stream]
	if st == nil {
		return nil // it has ended meanwhile
	}
	if st.window += more; more == 0 || st.window > h2wire.LargestWindow {
		c.resetStream(st, windowErrorCode(more))
		return c.flushFromReader()
	}
	if st.window > 0 {
		st.wake()
	}
	return nil
}

func windowErrorCode(more int64) h2wire.ErrorCode {
	if more == 0 {
		return h2wire.ProtocolError
	}
	return h2wire.FlowControlError
}

func (c *conn) handleReset(f h2wire.Frame, p []byte) error {
	if len(p) != 4 {
		return h2wire.NewError(h2wire.FrameSizeError, "RST_STREAM of a wrong size")
	}
	if err := c.abuse.add(costOfReset); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.Stream == 0 || c.isUnopened(f.Stream) {
		return h2wire.NewError(h2wire.ProtocolError, "RST_STREAM of a stream that is not open")
	}
	if st := c.streams[f.Stream]; st != nil {
		c.drop(st, errReset)
	}
	return c.flushFromReader()
}

// isUnopened reports whether the client has not opened a stream yet. Streams that it opens after it was sent a GOAWAY
// frame are not recorded, so they count as opened.
func (c *conn) isUnopened(id uint32) bool { return id > c.lastStream && !c.goingAway }

// errReset is the error that a handler gets when its client has reset the stream.
var errReset = errors.New("the client has ended the request")

// resetByID resets the stream with that number, which need not be open, because of an error of the client.
func (c *conn) resetByID(id uint32, why h2wire.ErrorCode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if st := c.streams[id]; st != nil {
		c.resetStream(st, why)
		return c.flushFromReader()
	}
	return c.sendReset(id, why)
}

// sendReset queues a RST_STREAM frame. The lock is held.
func (c *conn) sendReset(id uint32, why h2wire.ErrorCode) error {
	c.out.bytes = h2wire.AppendReset(c.out.bytes, id, why)
	c.recentResets[id/2%uint32(len(c.recentResets))] = id
	return c.flushFromReader()
}

// resetStream ends a stream and tells the client. The lock is held.
func (c *conn) resetStream(st *stream, why h2wire.ErrorCode) {
	_ = c.sendReset(st.id, why) // the caller checks the length of the output buffer
	c.drop(st, errReset)
}

// wasRecentlyReset reports whether a stream is among the last that this side has reset, so that the client may not know
// it yet.
func (c *conn) wasRecentlyReset(id uint32) bool {
	return c.recentResets[id/2%uint32(len(c.recentResets))] == id
}

// closeIfIdle closes the connection when it has had no request for a while.
func (c *conn) closeIfIdle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed != nil {
		return
	}
	if rest := c.Idle - time.Since(c.lastUsed); len(c.streams) > 0 || rest > 0 {
		c.idle.Reset(max(rest, c.Idle/8))
		return
	}
	c.sendGoAway()
}

// shutDown asks the client to send no more requests, and closes the connection after the last response.
func (c *conn) shutDown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sendGoAway()
}

func (c *conn) sendGoAway() {
	if c.goingAway || c.failed != nil {
		return
	}
	c.goingAway = true
	c.out.bytes = h2wire.AppendGoAway(c.out.bytes, c.lastStream, h2wire.NoError, "")
	c.startWriter()
}

// closeWithError tells the client which error it made, and waits until it has read that or closeTimeout has passed.
func (c *conn) closeWithError(b *h2wire.ConnectionError) {
	c.mu.Lock()
	c.out.bytes = h2wire.AppendGoAway(c.out.bytes, c.lastStream, b.Code, b.Text)
	c.goingAway, c.faulted = true, true
	c.startWriter()
	c.mu.Unlock()
	rest := closeTimeout
	if c.evicted.Load() {
		rest = evictedCloseTimeout
	}
	_ = c.socket.SetDeadline(time.Now().Add(rest))
	_, _ = io.CopyN(io.Discard, c.in, 1<<20)
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.failed == nil && (c.out.writerStarted || c.out.writing) {
		c.out.hasRoom.Wait() // until the frame is sent, or the deadline has passed
	}
}

// fail ends the connection for everybody who still uses it.
func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failLocked(err)
}

func (c *conn) failLocked(err error) {
	if c.failed != nil {
		return
	}
	c.failed = err
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // with EOF a handler would take the part of a body that was received for all of it
	}
	for _, st := range c.streams {
		c.drop(st, err)
	}
	c.queue = nil
	if c.idleWorker != nil {
		close(c.idleWorker)
		c.idleWorker = nil
	}
	c.out.hasRoom.Broadcast()
	_ = c.socket.SetDeadline(time.Unix(1, 0)) // wakes whoever reads or writes the socket; the goroutine that accepted it closes it
}
