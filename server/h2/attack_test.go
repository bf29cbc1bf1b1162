package h2

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"proa.dev/server/h2/h2wire"
)

// TestPrefaceAfterShutdown checks that a server which is shut down already sends its settings before GOAWAY.
func TestPrefaceAfterShutdown(t *testing.T) {
	t.Parallel()
	p := &rawClient{T: t, server: newConnections(rawConfig()), ended: make(chan struct{}), bodies: map[uint32][]byte{}}
	p.server.shutDown()
	p.connect(basicHandler)
	f, err := p.nextFrame()
	p.must(err)
	if _, ok := f.(*http2.SettingsFrame); !ok {
		t.Errorf("the first frame is %v", f)
	}
	p.expectEvent("goaway NO_ERROR", "EOF")
}

// TestShutdownBeforePreface checks that a client which sends its preface late does not keep a server from shutting
// down.
func TestShutdownBeforePreface(t *testing.T) {
	t.Parallel()
	p := dialWithoutPreface(t, rawConfig(), basicHandler)
	p.waitUntil("the connection is authenticated", func() bool { return p.withConn(func(*conn) bool { return true }) })
	p.server.shutDown()
	p.expectEvent("goaway NO_ERROR")
	p.sendPreface()
	p.waitClosed()
}

// TestIdle checks that a connection without requests is closed after some time, and one with a request is not.
func TestIdle(t *testing.T) {
	t.Parallel()
	cfg := bubbleConfig()
	cfg.Idle = 20 * time.Millisecond // of virtual time: a busy machine might not send the request in so short a time
	inBubble(t, cfg, func(http.ResponseWriter, *http.Request) { time.Sleep(3 * cfg.Idle) }, func(v *bubbleClient) {
		v.request(1, "GET", true)
		v.expectEvents(3*cfg.Idle - 1)
		v.expectEvents(cfg.Idle/2, "answer 1 200", "end 1")
		v.expectEvents(cfg.Idle+2*closeTimeout, "answer 1 200", "end 1", "goaway NO_ERROR", "over")
	})
}

// closeReason reads until the connection ends, and returns the error code of GOAWAY, if there was one.
func (p *rawClient) closeReason() string {
	p.Helper()
	reason := ""
	for {
		f, err := p.nextFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.Fatal("the connection does not end")
		}
		if err != nil {
			return reason
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			reason = g.ErrCode.String()
		}
	}
}

// flood calls send until the server closes the connection, or the given number of times. It does not read meanwhile.
func (p *rawClient) flood(times int, send func(i int) error) {
	w := bufio.NewWriterSize(p.socket, 16<<10)
	defer func() { _ = w.Flush() }()
	p.Framer = http2.NewFramer(w, p.socket)
	for i := range times {
		_ = p.socket.SetWriteDeadline(time.Now().Add(testTimeout))
		err := send(i)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.Fatal("the server neither reads nor ends the connection")
		}
		if err != nil {
			return
		}
	}
}

// TestRapidReset checks that the number of running handlers is limited, however fast a client resets its requests, and that
// a client which does not stop is disconnected.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	cfg := rawConfig()
	var now, maximum atomic.Int64
	open := make(chan struct{})
	p := dialWithPreface(t, cfg, func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := maximum.Load(); n > m && !maximum.CompareAndSwap(m, n); m = maximum.Load() {
		}
		<-open // the handler ignores that its client has gone
	})
	p.flood(1000, func(i int) error {
		id := uint32(2*i + 1)
		if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encodeRequest("GET", "/"), EndStream: true,
			EndHeaders: true}); err != nil {
			return err
		}
		return p.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	if reason := p.closeReason(); reason != "ENHANCE_YOUR_CALM" {
		t.Errorf("the connection ended with %q", reason)
	}
	close(open)
	p.waitUntil("handlers end", func() bool { return p.running.Load() == 0 })
	if maximum.Load() > int64(cfg.Streams) {
		t.Errorf("%d handlers ran at a time", maximum.Load())
	}
}

// TestOccasionalResets checks that a client which resets requests now and then is served, even if handlers take their
// time to end.
func TestOccasionalResets(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler)
	for i := range uint32(200) {
		p.sendRequest(4*i+1, "/hold")
		p.must(p.WriteRSTStream(4*i+1, http2.ErrCodeCancel))
		p.sendRequest(4*i+3, "/")
		p.expectEvent("answer " + strconv.Itoa(int(4*i+3)) + " 200")
	}
}

// TestTooManyStreams checks that requests beyond the limit are refused so that the client may retry.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	cfg := rawConfig()
	p := dialWithPreface(t, cfg, basicHandler)
	for i := range uint32(cfg.Streams) {
		p.sendRequest(2*i+1, "/hold")
	}
	next := uint32(2*cfg.Streams + 1)
	p.sendRequestHeader(next, "/")
	p.must(p.WriteData(next, false, []byte("x"))) // the client does not know yet that the stream is refused
	p.sendFrame(http2.FrameHeaders, 5, next, string(p.encodeFields("x", "x")))
	p.expectEvent("reset " + strconv.Itoa(int(next)) + " REFUSED_STREAM")
	p.expectAlive()
	p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
	p.sendRequest(next+2, "/")
	p.expectEvent("answer " + strconv.Itoa(int(next+2)) + " 200")
}

// TestContinuationFlood checks that a header without end is cut off, whether its frames are empty, full, or use the
// HPACK table to expand.
func TestContinuationFlood(t *testing.T) {
	t.Parallel()
	for name, piece := range map[string]string{
		"empty":  "",
		"full":   string(hpack.AppendHuffmanString([]byte{0, 1, 'x', 0xff, 0x80, 0x7f}, strings.Repeat("x", 100))),
		"fields": strings.Repeat("\x82", 100),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dialWithPreface(t, rawConfig(), basicHandler)
			p.must(p.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, p.encodeRequest("GET", "/")))
			p.flood(100_000, func(int) error { return p.WriteRawFrame(http2.FrameContinuation, 0, 1, []byte(piece)) })
			if reason := p.closeReason(); reason != "ENHANCE_YOUR_CALM" && reason != "COMPRESSION_ERROR" && reason != "" {
				t.Errorf("the connection ended with %q", reason)
			}
		})
	}
}

// TestTooLargeHeader checks that a request with too many header fields gets an error, and that the next one is served.
func TestTooLargeHeader(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler)
	many := []string{}
	for i := range 30 {
		many = append(many, "x-"+strconv.Itoa(i), strings.Repeat("x", 1000))
	}
	block := p.encodeRequest("GET", "/", many...)
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:10_000], EndStream: true}))
	p.must(p.WriteContinuation(1, false, block[10_000:20_000]))
	p.must(p.WriteContinuation(1, true, block[20_000:]))
	p.expectEvent("answer 1 431")
	p.sendRequest(3, "/", "x-0", strings.Repeat("x", 1000)) // from the HPACK table
	p.expectEvent("answer 3 200")
	p.sendRequest(5, "/", slices.Repeat([]string{"x-29", strings.Repeat("x", 1000)}, 200)...) // small on the wire, large when decoded
	p.expectEvent("answer 5 431")
	p.expectAlive()
}

// TestFloods checks that a client which makes the server send and does not read is disconnected, and that what waits
// for it is limited.
func TestFloods(t *testing.T) {
	t.Parallel()
	self := encodeUint32s(1) + "x"
	for name, send := range map[string]func(p *rawClient, i int) error{
		"pings":      func(p *rawClient, _ int) error { return p.WritePing(false, [8]byte{}) },
		"settings":   func(p *rawClient, _ int) error { return p.WriteSettings() },
		"priorities": func(p *rawClient, _ int) error { return p.WriteRawFrame(http2.FramePriority, 0, 1, []byte(self)) },
		"bad requests": func(p *rawClient, i int) error {
			return p.WriteRawFrame(http2.FrameHeaders, 5, uint32(2*i+1), []byte{0x82})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dialWithPreface(t, rawConfig(), basicHandler)
			maximum := 0
			p.flood(1_000_000, func(i int) error {
				if i%1000 == 0 {
					p.withConn(func(c *conn) bool { maximum = max(maximum, len(c.out.bytes)); return true })
				}
				if maximum > 2*replyLimit {
					return io.EOF
				}
				return send(p, i)
			})
			if maximum > 2*replyLimit {
				t.Fatalf("%d bytes wait for a client that does not read", maximum)
			}
			p.waitClosed() // the connection is closed even though the client does not read
		})
	}
}

// TestOneSenderGoroutine checks that at most one goroutine is started to send for the reader, however long it takes to
// be scheduled.
func TestOneSenderGoroutine(t *testing.T) {
	clientEnd, serverEnd := net.Pipe() // only their addresses are used
	defer clientEnd.Close()
	defer serverEnd.Close()
	cfg := rawConfig()
	c := newConn(t.Context(), &cfg, replayConn{clientEnd, strings.NewReader("")}, nil, http.HandlerFunc(basicHandler))
	c.mu.Lock()
	defer c.mu.Unlock()
	before := runtime.NumGoroutine()
	for range 10_000 {
		c.out.bytes = h2wire.AppendReset(c.out.bytes, 1, h2wire.ProtocolError)
		if err := c.flushFromReader(); err != nil {
			t.Fatal(err)
		}
	}
	if more := runtime.NumGoroutine() - before; more > 1000 {
		t.Errorf("%d goroutines wait to send the same", more)
	}
}

// TestEmptyResponsesAreBounded checks that responses without a body, which need no window, do not pile up for a client
// that does not read them.
func TestEmptyResponsesAreBounded(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Audit-Id", strings.Repeat("x", 10_000))
		w.WriteHeader(http.StatusNoContent)
	})
	maximum, last := 0, uint32(1)
	answered := func(c *conn) bool {
		maximum = max(maximum, len(c.out.bytes))
		return c.lastStream == last && len(c.streams) == 0
	}
	for waits := false; last < 1000 && !waits; {
		last += 2
		if p.WriteHeaders(http2.HeadersFrameParam{StreamID: last, BlockFragment: p.encodeRequest("GET", "/"), EndStream: true,
			EndHeaders: true}) != nil {
			break
		}
		for end := time.Now().Add(100 * time.Millisecond); !waits && !p.withConn(answered); time.Sleep(10 * time.Microsecond) {
			waits = time.Now().After(end) // the response waits, or the connection has ended
		}
	}
	if maximum > 2*replyLimit {
		t.Errorf("%d bytes wait for a client that does not read", maximum)
	}
}

// TestFramesDuringWrites checks that a window update or a reset is handled even when it arrives during a write.
func TestFramesDuringWrites(t *testing.T) {
	t.Parallel()
	for name, frame := range map[string]func(*rawClient) error{
		"window": func(p *rawClient) error { return p.WriteWindowUpdate(1, 10) },
		"reset":  func(p *rawClient) error { return p.WriteRSTStream(1, http2.ErrCodeCancel) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dialWithPreface(t, rawConfig(), basicHandler, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.expectAlive()
			p.blockable.armed.Store(true)
			p.sendRequest(1, "/bytes/1000000")
			<-p.blockable.blocked
			p.must(frame(p))
			p.waitUntil("the news is read", func() bool {
				return p.withConn(func(c *conn) bool { return c.streams[1] == nil || c.streams[1].window > 0 || len(c.out.bytes) > 0 })
			})
			close(p.blockable.release)
			if name == "window" {
				p.readBody(1, 10)
			}
			p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
			p.waitUntil("the handler has ended", func() bool { return p.running.Load() == 0 })
		})
	}
}

// TestLargeFramesAreNoFlood checks that a client which accepts large frames is not disconnected because of the amount of data
// that the server has to send.
func TestLargeFramesAreNoFlood(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30},
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: 8 << 20})
	p.must(p.WriteWindowUpdate(0, 1<<30))
	p.authenticate()
	p.expectAlive()
	p.blockable.armed.Store(true)
	p.sendRequest(1, "/bytes/1000")
	<-p.blockable.blocked
	p.sendRequest(3, "/bytes/3000000")
	p.waitUntil("the answer waits", func() bool { return p.withConn(func(c *conn) bool { return len(c.out.bytes) > outputLimit }) })
	p.must(p.WritePing(false, [8]byte([]byte("harmless"))))
	p.sendRequest(5, "/hold") // when this has arrived, the ping has been read
	p.waitUntil("the ping is read", func() bool { return !p.withConn(func(c *conn) bool { return !c.goingAway && c.streams[5] == nil }) })
	close(p.blockable.release)
	for got := ""; got != "pong harmless"; {
		if got = p.nextEvent(); !strings.HasPrefix(got, "answer") && got != "pong harmless" {
			t.Fatalf("got %q", got)
		}
	}
	p.expectAlive()
}

// TestUnreadResponseEndsWithItsClient checks that a handler whose client reads nothing learns when the client resets or disconnects.
func TestUnreadResponseEndsWithItsClient(t *testing.T) {
	t.Parallel()
	for name, endRequest := range map[string]func(*rawClient) error{
		"reset": func(p *rawClient) error { return p.WriteRSTStream(1, http2.ErrCodeCancel) },
		"close": func(p *rawClient) error { return p.socket.Close() },
		"half":  func(p *rawClient) error { return p.socket.CloseWrite() },
		"fault": func(p *rawClient) error {
			return errors.Join(p.WriteRawFrame(http2.FramePing, 0, 0, nil), p.socket.CloseWrite())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan error, 1)
			p := dialWithPreface(t, rawConfig(), func(w http.ResponseWriter, r *http.Request) {
				_, err := w.Write(pattern(1 << 20))
				<-r.Context().Done()
				got <- err
			}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.sendRequest(1, "/")
			p.expectEvent("answer 1 200")
			p.must(endRequest(p))
			select {
			case err := <-got:
				if err == nil {
					t.Error("the handler got no error for a response that was not sent")
				}
			case <-time.After(testTimeout):
				t.Error("the handler got no error")
			}
		})
	}
}

// upload sends bodies as the flow control of the server allows, a piece of each in turn, until all are sent.
func (p *rawClient) upload(size, piece int, ids ...uint32) {
	p.Helper()
	all, windows, rest := h2wire.DefaultWindow, map[uint32]int{}, map[uint32]int{}
	for _, id := range ids {
		windows[id], rest[id] = StreamWindow, size
		p.sendRequestHeader(id, "/", "content-length", strconv.Itoa(size))
	}
	answered := 0
	for answered < len(ids) {
		sent := false
		for _, id := range ids {
			if n := min(rest[id], piece, all, windows[id]); n > 0 {
				rest[id], all, windows[id], sent = rest[id]-n, all-n, windows[id]-n, true
				p.must(p.WriteData(id, rest[id] == 0, make([]byte, n)))
			}
		}
		if sent {
			continue
		}
		f, err := p.nextFrame()
		if err != nil {
			p.Fatalf("%d of %d are answered, the window of all is %d: %v", answered, len(ids), all, err)
		}
		switch f := f.(type) {
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				all += int(f.Increment)
			} else {
				windows[f.StreamID] += int(f.Increment)
			}
		case *http2.MetaHeadersFrame:
			answered++
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			p.Fatalf("got %v", f)
		}
	}
	for _, id := range ids {
		p.waitStreamEnd(id)
		if got := string(p.bodies[id]); got != strconv.Itoa(size) {
			p.Errorf("the server has read %q bytes", got)
		}
	}
}

// TestManyUploads checks that bodies which are together larger than the window of the connection all arrive, small ones
// and large ones.
func TestManyUploads(t *testing.T) {
	t.Parallel()
	for _, size := range []int{smallBody, smallBody + 1, 300_000} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			t.Parallel()
			cfg := rawConfig()
			cfg.Streams = 40
			p := dialWithPreface(t, cfg, basicHandler)
			ids := []uint32{}
			for i := range uint32(cfg.Streams) {
				ids = append(ids, 2*i+1)
			}
			p.upload(size, 4000, ids...)
		})
	}
}

// waitForWindow reads until the server has enlarged the window of the connection by at least want bytes.
func (p *rawClient) waitForWindow(want int) {
	p.Helper()
	for got := 0; got < want; {
		f, err := p.nextFrame()
		if err != nil {
			p.Fatalf("%d of %d bytes are allowed: %v", got, want, err)
		}
		if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID == 0 {
			got += int(w.Increment)
		}
	}
}

// fillWindow sends as much data as the initial window of a stream allows.
func (p *rawClient) fillWindow(id uint32) {
	p.Helper()
	for n := StreamWindow; n > 0; n -= h2wire.SmallestFrame {
		p.must(p.WriteData(id, false, make([]byte, min(n, h2wire.SmallestFrame))))
	}
}

// waitForAuthenticatedWindow waits until the connection has the window of an authenticated one.
func (p *rawClient) waitForAuthenticatedWindow() {
	p.Helper()
	p.waitForWindow(ConnectionWindow(rawConfig().Streams) - h2wire.DefaultWindow)
}

// TestUnreadDataRestoresWindow checks that data for a request whose handler has returned does not use up the window of others.
func TestUnreadDataRestoresWindow(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	p := dialWithPreface(t, rawConfig(), waitHandler(open))
	p.authenticate()
	p.waitForAuthenticatedWindow()
	for id := uint32(1); id < 20; id += 2 {
		p.sendRequestHeader(id, "/")
		p.fillWindow(id) // the handler does not read it
	}
	close(open)
	p.waitUntil("the handlers have returned", func() bool { return p.withConn(func(c *conn) bool { return len(c.streams) == 0 }) })
	for id := uint32(1); id < 20; id += 2 {
		p.fillWindow(id) // the client has not read that the stream was reset
	}
	p.waitForWindow(20*StreamWindow - bodyWindow/4)
	p.expectAlive("answer ") // those of the last requests may come after the window
}

// TestResetRestoresWindow checks that the window of data for a request that the client resets is restored at once,
// though the handler has not noticed.
func TestResetRestoresWindow(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	p := dialWithPreface(t, rawConfig(), func(http.ResponseWriter, *http.Request) { <-open })
	t.Cleanup(func() { close(open) })
	p.authenticate()
	p.waitForAuthenticatedWindow()
	for id := uint32(1); id < 18; id += 2 {
		p.sendRequestHeader(id, "/")
		p.fillWindow(id)
		p.must(p.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	p.waitForWindow(bodyWindow / 2)
}

// TestWindowExceeded checks that a client which exceeds a window gets an error, for a stream and for the connection.
func TestWindowExceeded(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler)
	p.authenticate()
	p.sendRequestHeader(1, "/hold")
	p.fillWindow(1)
	p.must(p.WriteData(1, false, []byte("x")))
	p.expectEvent("reset 1 FLOW_CONTROL_ERROR")

	p = dialWithPreface(t, rawConfig(), basicHandler)
	p.sendRequestHeader(1, "/hold")
	p.sendRequestHeader(3, "/hold")
	p.fillWindow(1)
	p.must(p.WriteData(3, false, []byte("x")))
	p.expectEvent("goaway FLOW_CONTROL_ERROR")
}

// TestSlowPreface checks that a client which does not send its preface in time is disconnected, whether it sends
// nothing or a part.
func TestSlowPreface(t *testing.T) {
	t.Parallel()
	for name, part := range map[string]string{"nothing": "", "a part": h2wire.Preface[:10], "no settings": h2wire.Preface} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := rawConfig()
			cfg.Greeting = 20 * time.Millisecond
			p := dialWithoutPreface(t, cfg, basicHandler)
			p.sendText(part)
			p.waitClosed()
		})
	}
}

// TestPanics checks that a handler that panics ends its stream, and only that.
func TestPanics(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/panic":
			panic("no")
		case "/abort":
			panic(http.ErrAbortHandler)
		case "/status":
			w.WriteHeader(7)
		case "/midway":
			_, _ = io.WriteString(w, "something")
			_ = http.NewResponseController(w).Flush()
			panic("no")
		}
	})
	for i, path := range []string{"/panic", "/abort", "/status", "/midway"} {
		id := 2*i + 1
		p.sendRequest(uint32(id), path)
		if path == "/midway" {
			p.expectEvent("answer " + strconv.Itoa(id) + " 200")
		}
		p.expectEvent("reset " + strconv.Itoa(id) + " INTERNAL_ERROR")
	}
	p.sendRequest(99, "/")
	p.expectEvent("answer 99 200")
}

// TestNoHandlerStartsAfterConnectionFailed checks that frames which are read after a connection has failed start nothing: no
// handler could learn that its client has gone.
func TestNoHandlerStartsAfterConnectionFailed(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler)
	p.expectAlive()
	started := p.withConn(func(c *conn) bool {
		c.failLocked(errors.New("the client has gone"))
		post := h2wire.NewHeaderList(1 << 10)
		for name, value := range map[string]string{":method": "POST", ":scheme": "https", ":path": "/", ":authority": "proa"} {
			post.Add(hpack.HeaderField{Name: name, Value: value}, h2wire.NameCache{})
		}
		err := c.open(h2wire.Frame{Type: h2wire.FrameHeaders, Flags: h2wire.FlagEndHeaders, Stream: 1}, post)
		for _, st := range c.streams { // the test ends only when all streams have
			defer c.drop(st, errReset)
		}
		return err == nil || len(c.streams) > 0
	})
	if started {
		t.Error("a request was taken on a connection that has failed")
	}
}
