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
	p := &peer{T: t, server: newConnections(rawConfig()), ended: make(chan struct{}), bodies: map[uint32][]byte{}}
	p.server.shutDown()
	p.begin(plain)
	f, err := p.next()
	p.must(err)
	if _, ok := f.(*http2.SettingsFrame); !ok {
		t.Errorf("the first frame is %v", f)
	}
	p.see("goaway NO_ERROR", "EOF")
}

// TestShutdownBeforePreface checks that a client which sends its preface late does not keep a server from shutting
// down.
func TestShutdownBeforePreface(t *testing.T) {
	t.Parallel()
	p := dialRaw(t, rawConfig(), plain)
	p.until("the connection is known", func() bool { return p.at(func(*conn) bool { return true }) })
	p.server.shutDown()
	p.see("goaway NO_ERROR")
	p.greet()
	p.gone()
}

// TestIdle checks that a connection without requests is closed after some time, and one with a request is not.
func TestIdle(t *testing.T) {
	t.Parallel()
	cfg := rawConfig()
	cfg.Idle = 20 * time.Millisecond
	open := make(chan struct{})
	p := dialed(t, cfg, gate(open))
	p.ask(1, "/")
	time.Sleep(3 * cfg.Idle)
	p.alive()
	close(open)
	p.see("answer 1 200")
	p.see("goaway NO_ERROR")
	p.see("EOF")
	p.must(p.socket.Close())
	p.gone()
}

// outcome reads until the connection ends, and returns the error code of GOAWAY, if there was one.
func (p *peer) outcome() string {
	p.Helper()
	why := ""
	for {
		f, err := p.next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.Fatal("the connection does not end")
		}
		if err != nil {
			return why
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			why = g.ErrCode.String()
		}
	}
}

// flood sends something repeatedly until the server closes the connection, or it was sent often enough. It does not
// read meanwhile.
func (p *peer) flood(times int, send func(i int) error) {
	w := bufio.NewWriterSize(p.socket, 16<<10)
	defer func() { _ = w.Flush() }()
	p.Framer = http2.NewFramer(w, p.socket)
	for i := range times {
		_ = p.socket.SetWriteDeadline(time.Now().Add(patience))
		err := send(i)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			p.Fatal("the server neither reads nor ends the connection")
		}
		if err != nil {
			return
		}
	}
}

// TestRapidReset checks that only so many handlers run, however fast a client resets its requests, and that a client
// which does not stop is disconnected.
func TestRapidReset(t *testing.T) {
	t.Parallel()
	cfg := rawConfig()
	var now, most atomic.Int64
	open := make(chan struct{})
	p := dialed(t, cfg, func(http.ResponseWriter, *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		<-open // the handler ignores that its client has gone
	})
	p.flood(1000, func(i int) error {
		id := uint32(2*i + 1)
		if err := p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.head("GET", "/"), EndStream: true,
			EndHeaders: true}); err != nil {
			return err
		}
		return p.WriteRSTStream(id, http2.ErrCodeCancel)
	})
	if why := p.outcome(); why != "ENHANCE_YOUR_CALM" {
		t.Errorf("the connection ended with %q", why)
	}
	close(open)
	p.until("handlers end", func() bool { return p.running.Load() == 0 })
	if most.Load() > int64(cfg.Streams) {
		t.Errorf("%d handlers ran at a time", most.Load())
	}
}

// TestResetsNowAndThen checks that a client which resets requests now and then is served, even if handlers take their
// time to end.
func TestResetsNowAndThen(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), plain)
	for i := range uint32(200) {
		p.ask(4*i+1, "/hold")
		p.must(p.WriteRSTStream(4*i+1, http2.ErrCodeCancel))
		p.ask(4*i+3, "/")
		p.see("answer " + strconv.Itoa(int(4*i+3)) + " 200")
	}
}

// TestTooManyStreams checks that requests beyond the limit are refused so that the client may retry.
func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	cfg := rawConfig()
	p := dialed(t, cfg, plain)
	for i := range uint32(cfg.Streams) {
		p.ask(2*i+1, "/hold")
	}
	next := uint32(2*cfg.Streams + 1)
	p.offer(next, "/")
	p.must(p.WriteData(next, false, []byte("x"))) // the client does not know yet
	p.raw(http2.FrameHeaders, 5, next, string(p.fields("x", "x")))
	p.see("reset " + strconv.Itoa(int(next)) + " REFUSED_STREAM")
	p.alive()
	p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
	p.ask(next+2, "/")
	p.see("answer " + strconv.Itoa(int(next+2)) + " 200")
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
			p := dialed(t, rawConfig(), plain)
			p.must(p.WriteRawFrame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, p.head("GET", "/")))
			p.flood(100_000, func(int) error { return p.WriteRawFrame(http2.FrameContinuation, 0, 1, []byte(piece)) })
			if why := p.outcome(); why != "ENHANCE_YOUR_CALM" && why != "COMPRESSION_ERROR" && why != "" {
				t.Errorf("the connection ended with %q", why)
			}
		})
	}
}

// TestHugeHead checks that a request with too many header fields gets an error, and that the next one is served.
func TestHugeHead(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), plain)
	many := []string{}
	for i := range 30 {
		many = append(many, "x-"+strconv.Itoa(i), strings.Repeat("x", 1000))
	}
	block := p.head("GET", "/", many...)
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block[:10_000], EndStream: true}))
	p.must(p.WriteContinuation(1, false, block[10_000:20_000]))
	p.must(p.WriteContinuation(1, true, block[20_000:]))
	p.see("answer 1 431")
	p.ask(3, "/", "x-0", strings.Repeat("x", 1000)) // from the HPACK table
	p.see("answer 3 200")
	p.ask(5, "/", slices.Repeat([]string{"x-29", strings.Repeat("x", 1000)}, 200)...) // small on the wire, large when decoded
	p.see("answer 5 431")
	p.alive()
}

// TestFloods checks that a client which makes the server send and does not read is disconnected, and that what waits
// for it is limited.
func TestFloods(t *testing.T) {
	t.Parallel()
	self := uint32s(1) + "x"
	for name, send := range map[string]func(p *peer, i int) error{
		"pings":      func(p *peer, _ int) error { return p.WritePing(false, [8]byte{}) },
		"settings":   func(p *peer, _ int) error { return p.WriteSettings() },
		"priorities": func(p *peer, _ int) error { return p.WriteRawFrame(http2.FramePriority, 0, 1, []byte(self)) },
		"bad requests": func(p *peer, i int) error {
			return p.WriteRawFrame(http2.FrameHeaders, 5, uint32(2*i+1), []byte{0x82})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dialed(t, rawConfig(), plain)
			most := 0
			p.flood(1_000_000, func(i int) error {
				if i%1000 == 0 {
					p.at(func(c *conn) bool { most = max(most, len(c.out.bytes)); return true })
				}
				if most > 2*replyLimit {
					return io.EOF
				}
				return send(p, i)
			})
			if most > 2*replyLimit {
				t.Fatalf("%d bytes wait for a client that does not read", most)
			}
			p.gone() // even though it does not read
		})
	}
}

// TestOneSenderIsEnough checks that at most one goroutine is started to send for the reader, however long it takes to
// be scheduled.
func TestOneSenderIsEnough(t *testing.T) {
	here, there := net.Pipe() // for their addresses
	defer here.Close()
	defer there.Close()
	cfg := rawConfig()
	c := newConn(t.Context(), &cfg, recording{here, strings.NewReader("")}, nil, http.HandlerFunc(plain))
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

// TestEmptyAnswersAreBounded checks that responses without a body, which need no window, do not pile up for a client
// that does not read them.
func TestEmptyAnswersAreBounded(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Audit-Id", strings.Repeat("x", 10_000))
		w.WriteHeader(http.StatusNoContent)
	})
	most, last := 0, uint32(1)
	answered := func(c *conn) bool {
		most = max(most, len(c.out.bytes))
		return c.lastStream == last && len(c.streams) == 0
	}
	for waits := false; last < 1000 && !waits; {
		last += 2
		if p.WriteHeaders(http2.HeadersFrameParam{StreamID: last, BlockFragment: p.head("GET", "/"), EndStream: true,
			EndHeaders: true}) != nil {
			break
		}
		for end := time.Now().Add(100 * time.Millisecond); !waits && !p.at(answered); time.Sleep(10 * time.Microsecond) {
			waits = time.Now().After(end) // or the connection has ended
		}
	}
	if most > 2*replyLimit {
		t.Errorf("%d bytes wait for a client that does not read", most)
	}
}

// TestFramesDuringWrites checks that a window update or a reset is handled even when it arrives during a write.
func TestFramesDuringWrites(t *testing.T) {
	t.Parallel()
	for name, news := range map[string]func(*peer) error{
		"window": func(p *peer) error { return p.WriteWindowUpdate(1, 10) },
		"reset":  func(p *peer) error { return p.WriteRSTStream(1, http2.ErrCodeCancel) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := dialed(t, rawConfig(), plain, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.alive()
			p.gated.armed.Store(true)
			p.ask(1, "/bytes/1000000")
			<-p.gated.blocked
			p.must(news(p))
			p.until("the news is read", func() bool {
				return p.at(func(c *conn) bool { return c.streams[1] == nil || c.streams[1].window > 0 || len(c.out.bytes) > 0 })
			})
			close(p.gated.release)
			if name == "window" {
				p.body(1, 10)
			}
			p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
			p.until("the handler has ended", func() bool { return p.running.Load() == 0 })
		})
	}
}

// TestLargeFramesAreNoFlood checks that a client which accepts large frames is not disconnected for what the server
// wants to send.
func TestLargeFramesAreNoFlood(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), plain, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30},
		http2.Setting{ID: http2.SettingMaxFrameSize, Val: 8 << 20})
	p.must(p.WriteWindowUpdate(0, 1<<30))
	p.known()
	p.alive()
	p.gated.armed.Store(true)
	p.ask(1, "/bytes/1000")
	<-p.gated.blocked
	p.ask(3, "/bytes/3000000")
	p.until("the answer waits", func() bool { return p.at(func(c *conn) bool { return len(c.out.bytes) > outputLimit }) })
	p.must(p.WritePing(false, [8]byte([]byte("harmless"))))
	p.ask(5, "/hold") // when this has arrived, the ping has been read
	p.until("the ping is read", func() bool { return !p.at(func(c *conn) bool { return !c.goingAway && c.streams[5] == nil }) })
	close(p.gated.release)
	for got := ""; got != "pong harmless"; {
		if got = p.seen(); !strings.HasPrefix(got, "answer") && got != "pong harmless" {
			t.Fatalf("got %q", got)
		}
	}
	p.alive()
}

// TestAnswersNobodyReads checks that a handler whose client reads nothing learns when the client resets or disconnects.
func TestAnswersNobodyReads(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*peer) error{
		"reset": func(p *peer) error { return p.WriteRSTStream(1, http2.ErrCodeCancel) },
		"close": func(p *peer) error { return p.socket.Close() },
		"half":  func(p *peer) error { return p.socket.CloseWrite() },
		"fault": func(p *peer) error {
			return errors.Join(p.WriteRawFrame(http2.FramePing, 0, 0, nil), p.socket.CloseWrite())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := make(chan error, 1)
			p := dialed(t, rawConfig(), func(w http.ResponseWriter, r *http.Request) {
				_, err := w.Write(pattern(1 << 20))
				<-r.Context().Done()
				got <- err
			}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.ask(1, "/")
			p.see("answer 1 200")
			p.must(leave(p))
			select {
			case err := <-got:
				if err == nil {
					t.Error("the handler believes that its answer was sent")
				}
			case <-time.After(patience):
				t.Error("the handler was not told")
			}
		})
	}
}

// upload sends bodies as the flow control of the server allows, a piece of each in turn, until all are sent.
func (p *peer) upload(size, piece int, ids ...uint32) {
	p.Helper()
	all, windows, rest := h2wire.DefaultWindow, map[uint32]int{}, map[uint32]int{}
	for _, id := range ids {
		windows[id], rest[id] = StreamWindow, size
		p.offer(id, "/", "content-length", strconv.Itoa(size))
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
		f, err := p.next()
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
		p.finished(id)
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
			p := dialed(t, cfg, plain)
			ids := []uint32{}
			for i := range uint32(cfg.Streams) {
				ids = append(ids, 2*i+1)
			}
			p.upload(size, 4000, ids...)
		})
	}
}

// room waits until the window of the connection allows that much to be sent.
func (p *peer) room(want int) {
	p.Helper()
	for got := 0; got < want; {
		f, err := p.next()
		if err != nil {
			p.Fatalf("%d of %d bytes are allowed: %v", got, want, err)
		}
		if w, ok := f.(*http2.WindowUpdateFrame); ok && w.StreamID == 0 {
			got += int(w.Increment)
		}
	}
}

// fill sends as much as a stream may send at the start.
func (p *peer) fill(id uint32) {
	p.Helper()
	for n := StreamWindow; n > 0; n -= h2wire.SmallestFrame {
		p.must(p.WriteData(id, false, make([]byte, min(n, h2wire.SmallestFrame))))
	}
}

// grown waits until the connection has the window of an authenticated one.
func (p *peer) grown() {
	p.Helper()
	p.room(ConnectionWindow(rawConfig().Streams) - h2wire.DefaultWindow)
}

// TestDataNobodyReads checks that data for a request whose handler has returned does not use up the window of others.
func TestDataNobodyReads(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	p := dialed(t, rawConfig(), gate(open))
	p.known()
	p.grown()
	for id := uint32(1); id < 20; id += 2 {
		p.offer(id, "/")
		p.fill(id) // nobody reads it
	}
	close(open)
	p.until("the handlers have returned", func() bool { return p.at(func(c *conn) bool { return len(c.streams) == 0 }) })
	for id := uint32(1); id < 20; id += 2 {
		p.fill(id) // the client has not read that the stream was reset
	}
	p.room(20*StreamWindow - bodyWindow/4)
	p.alive("answer ") // those of the last requests may come after the window
}

// TestResetGivesTheWindowBack checks that the window of data for a request that the client resets is restored at once,
// though the handler has not noticed.
func TestResetGivesTheWindowBack(t *testing.T) {
	t.Parallel()
	open := make(chan struct{})
	p := dialed(t, rawConfig(), func(http.ResponseWriter, *http.Request) { <-open })
	t.Cleanup(func() { close(open) })
	p.known()
	p.grown()
	for id := uint32(1); id < 18; id += 2 {
		p.offer(id, "/")
		p.fill(id)
		p.must(p.WriteRSTStream(id, http2.ErrCodeCancel))
	}
	p.room(bodyWindow / 2)
}

// TestMoreThanTheWindow checks that a client which exceeds a window gets an error, for a stream and for the connection.
func TestMoreThanTheWindow(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), plain)
	p.known()
	p.offer(1, "/hold")
	p.fill(1)
	p.must(p.WriteData(1, false, []byte("x")))
	p.see("reset 1 FLOW_CONTROL_ERROR")

	p = dialed(t, rawConfig(), plain)
	p.offer(1, "/hold")
	p.offer(3, "/hold")
	p.fill(1)
	p.must(p.WriteData(3, false, []byte("x")))
	p.see("goaway FLOW_CONTROL_ERROR")
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
			p := dialRaw(t, cfg, plain)
			p.say(part)
			p.gone()
		})
	}
}

// TestPanics checks that a handler that panics ends its stream, and only that.
func TestPanics(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), func(w http.ResponseWriter, r *http.Request) {
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
		p.ask(uint32(id), path)
		if path == "/midway" {
			p.see("answer " + strconv.Itoa(id) + " 200")
		}
		p.see("reset " + strconv.Itoa(id) + " INTERNAL_ERROR")
	}
	p.ask(99, "/")
	p.see("answer 99 200")
}

// TestNothingStartsAfterTheEnd checks that frames which are read after a connection has failed start nothing: no
// handler could learn that its client has gone.
func TestNothingStartsAfterTheEnd(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), plain)
	p.alive()
	started := p.at(func(c *conn) bool {
		c.failLocked(errors.New("the client has gone"))
		post := h2wire.NewHeaderList(1 << 10)
		for name, value := range map[string]string{":method": "POST", ":scheme": "https", ":path": "/", ":authority": "proa"} {
			post.Add(hpack.HeaderField{Name: name, Value: value}, h2wire.NameCache{})
		}
		err := c.open(h2wire.Frame{Type: h2wire.FrameHeaders, Flags: h2wire.FlagEndHeaders, Stream: 1}, post)
		for _, st := range c.streams { // so that the test ends
			defer c.drop(st, errReset)
		}
		return err == nil || len(c.streams) > 0
	})
	if started {
		t.Error("a request was taken on a connection that has failed")
	}
}
