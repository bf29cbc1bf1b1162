package h2

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
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

// patience is how long a test waits for something that must happen.
const patience = 10 * time.Second

// peer is a client that sends what the test says, valid or not. Every handler of its connection must end with the
// connection.
type peer struct {
	*testing.T
	*http2.Framer
	server  *connections
	socket  *net.TCPConn
	ended   chan struct{} // serve has returned
	running atomic.Int64  // handlers
	encoder *hpack.Encoder
	block   bytes.Buffer
	bodies  map[uint32][]byte // received parts of responses
	gated   *gated
}

// gated is the server's end of a connection, whose next write can be blocked.
type gated struct {
	*net.TCPConn
	armed            atomic.Bool
	blocked, release chan struct{}
}

func (g *gated) Write(p []byte) (int, error) {
	if g.armed.CompareAndSwap(true, false) {
		close(g.blocked)
		<-g.release
	}
	return g.TCPConn.Write(p)
}

func rawConfig() Config {
	return Config{Streams: 10, Header: 16 << 10, Greeting: patience, Idle: time.Minute, Log: slog.New(slog.DiscardHandler)}
}

// dialRaw connects a client that has not sent anything yet.
func dialRaw(t *testing.T, cfg Config, h http.HandlerFunc) *peer {
	t.Helper()
	p := &peer{T: t, server: newConnections(cfg), ended: make(chan struct{}), bodies: map[uint32][]byte{}}
	p.begin(h)
	return p
}

// begin connects to the server, whose state may have been changed before.
func (p *peer) begin(h http.HandlerFunc) {
	p.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	p.must(err)
	p.socket, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	p.must(err)
	far, err := l.AcceptTCP()
	p.must(err)
	p.must(l.Close())
	p.must(far.SetWriteBuffer(16 << 10))
	p.Framer = http2.NewFramer(p.socket, p.socket)
	p.AllowIllegalWrites = true
	p.ReadMetaHeaders = hpack.NewDecoder(h2wire.DefaultTableSize, nil)
	p.encoder = hpack.NewEncoder(&p.block)
	p.gated = &gated{TCPConn: far, blocked: make(chan struct{}), release: make(chan struct{})}
	go func() {
		defer close(p.ended)
		defer far.Close() // as http.Server does
		p.server.serve(p.Context(), p.gated, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.running.Add(1)
			defer p.running.Add(-1)
			h(w, r)
		}))
	}()
	p.Cleanup(func() {
		_ = p.socket.Close()
		p.gone()
		p.until("all handlers end", func() bool { return p.running.Load() == 0 })
		p.until("no memory is held", func() bool {
			return p.server.unauthenticated.held.Load() == 0 && p.server.authenticated.held.Load() == 0
		})
	})
}

// dialed connects a client that has sent its preface, with settings of its own.
func dialed(t *testing.T, cfg Config, h http.HandlerFunc, settings ...http2.Setting) *peer {
	t.Helper()
	p := dialRaw(t, cfg, h)
	p.greet(settings...)
	return p
}

func (p *peer) greet(settings ...http2.Setting) {
	p.Helper()
	p.say(h2wire.Preface)
	p.must(p.WriteSettings(settings...))
}

// known makes the server treat the connection as authenticated.
func (p *peer) known() {
	p.Helper()
	p.until("the connection is known", func() bool { return p.at(func(c *conn) bool { c.authenticate(); return true }) })
}

func (p *peer) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *peer) say(text string) {
	p.Helper()
	_, err := io.WriteString(p.socket, text)
	p.must(err)
}

// until polls for a condition.
func (p *peer) until(what string, is func() bool) {
	p.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("it is not so that %s", what)
		}
	}
}

// gone waits until the server has closed the connection.
func (p *peer) gone() {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.Fatal("the connection is still served")
	}
}

// fields encodes pairs of names and values.
func (p *peer) fields(pairs ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		p.must(p.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}))
	}
	return bytes.Clone(p.block.Bytes())
}

// head returns the header of a request, with further fields.
func (p *peer) head(method, path string, more ...string) []byte {
	return p.fields(append([]string{":method", method, ":scheme", "https", ":authority", "proa", ":path", path}, more...)...)
}

// ask sends a request without a body.
func (p *peer) ask(id uint32, path string, more ...string) {
	p.Helper()
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.head("GET", path, more...), EndStream: true,
		EndHeaders: true}))
}

// offer sends the header of a request whose body follows.
func (p *peer) offer(id uint32, path string, more ...string) {
	p.Helper()
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.head("POST", path, more...), EndHeaders: true}))
}

// raw sends any frame.
func (p *peer) raw(kind http2.FrameType, flags http2.Flags, id uint32, payload string) {
	p.Helper()
	p.must(p.WriteRawFrame(kind, flags, id, []byte(payload)))
}

// next reads the next frame, and keeps the parts of bodies.
func (p *peer) next() (http2.Frame, error) {
	_ = p.socket.SetReadDeadline(time.Now().Add(patience))
	f, err := p.ReadFrame()
	if d, ok := f.(*http2.DataFrame); ok && err == nil {
		p.bodies[d.StreamID] = append(p.bodies[d.StreamID], d.Data()...)
	}
	return f, err
}

// seen returns the next frame that ends something, as text. Other frames are skipped.
func (p *peer) seen() string {
	p.Helper()
	for {
		f, err := p.next()
		if err != nil {
			return err.Error()
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			return "goaway " + f.ErrCode.String()
		case *http2.RSTStreamFrame:
			return fmt.Sprintf("reset %d %v", f.StreamID, f.ErrCode)
		case *http2.MetaHeadersFrame:
			return fmt.Sprintf("answer %d %s", f.StreamID, f.PseudoValue("status"))
		case *http2.PingFrame:
			if f.IsAck() {
				return "pong " + string(f.Data[:])
			}
		}
	}
}

// see checks that the next event is one of several.
func (p *peer) see(want ...string) {
	p.Helper()
	got := p.seen()
	for _, w := range want {
		if got == w {
			return
		}
	}
	p.Fatalf("got %q, want %q", got, want)
}

// alive checks that the connection still works. Resets that come before are skipped, and what is expected besides.
func (p *peer) alive(expected ...string) {
	p.Helper()
	expected = append(expected, "reset ")
	p.must(p.WritePing(false, [8]byte([]byte("alive???"))))
	for {
		switch got := p.seen(); {
		case got == "pong alive???":
			return
		case !slices.ContainsFunc(expected, func(prefix string) bool { return strings.HasPrefix(got, prefix) }):
			p.Fatalf("got %q of a connection that should live", got)
		}
	}
}

// body waits until so much of a response has arrived, and no more.
func (p *peer) body(id uint32, size int) []byte {
	p.Helper()
	for len(p.bodies[id]) < size {
		f, err := p.next()
		p.must(err)
		switch f.(type) {
		case *http2.GoAwayFrame, *http2.RSTStreamFrame:
			p.Fatalf("got %v after %d of %d bytes", f, len(p.bodies[id]), size)
		}
	}
	if len(p.bodies[id]) > size {
		p.Fatalf("got %d bytes, allowed are %d", len(p.bodies[id]), size)
	}
	return p.bodies[id]
}

// stuck checks that no more of a response arrives than has arrived.
func (p *peer) stuck(id uint32) {
	p.Helper()
	had := len(p.bodies[id])
	for range 3 { // each lets a handler run that would send
		p.alive()
	}
	if now := len(p.bodies[id]); now != had {
		p.Fatalf("got %d bytes without a window", now-had)
	}
}

// plain is the handler of most tests: it holds a request until its client disconnects, sends as many bytes as
// requested, or counts a body.
func plain(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/hold" {
		<-r.Context().Done()
		return
	}
	if text, ok := strings.CutPrefix(r.URL.Path, "/bytes/"); ok {
		n, _ := strconv.Atoi(text)
		_, _ = w.Write(pattern(n))
		return
	}
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return
	}
	_, _ = fmt.Fprint(w, n)
}

// pattern returns a text in which every position differs from its neighbours.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

func uint32s(values ...uint32) string {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return string(b)
}

// setting is one pair of a SETTINGS frame.
func setting(id http2.SettingID, value uint32) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(id))) + uint32s(value)
}

// rawCase is something that a client should not send, or rarely does, and the result.
type rawCase struct {
	name string
	send func(*peer)
	want string // one of these, between bars
}

// play runs cases, each on a connection of its own. After the error of a stream, the connection must be alive.
func play(t *testing.T, cases []rawCase, begin func(*peer)) {
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := dialRaw(t, rawConfig(), plain)
			begin(p)
			c.send(p)
			p.see(strings.Split(c.want, "|")...)
			if strings.HasPrefix(c.want, "reset") {
				p.alive()
			}
		})
	}
}

// TestPreface checks that a connection begins with the preface and the settings of the client.
func TestPreface(t *testing.T) {
	play(t, []rawCase{
		{"another preface", func(p *peer) { p.say(strings.Repeat("GET / HTTP/1.1\r\n\r\n", 2)) }, "goaway PROTOCOL_ERROR"},
		{"a ping first", func(p *peer) { p.say(h2wire.Preface); p.must(p.WritePing(false, [8]byte{})) }, "goaway PROTOCOL_ERROR"},
		{"a request first", func(p *peer) { p.say(h2wire.Preface); p.ask(1, "/") }, "goaway PROTOCOL_ERROR"},
		{"an acknowledgement first", func(p *peer) { p.say(h2wire.Preface); p.must(p.WriteSettingsAck()) }, "goaway PROTOCOL_ERROR"},
		{"nothing wrong", func(p *peer) { p.greet(); p.ask(1, "/") }, "answer 1 200"},
	}, func(*peer) {})
}

// TestConnectionFrames checks the sizes and places of frames that are about the connection.
func TestConnectionFrames(t *testing.T) {
	settings := func(payload string) func(*peer) {
		return func(p *peer) { p.raw(http2.FrameSettings, 0, 0, payload) }
	}
	play(t, []rawCase{
		{"a frame too large", func(p *peer) { p.raw(http2.FrameType(99), 0, 0, strings.Repeat("x", 16<<10+1)) }, "goaway FRAME_SIZE_ERROR"},
		{"data too large", func(p *peer) { p.offer(1, "/"); p.raw(http2.FrameData, 0, 1, strings.Repeat("x", 16<<10+1)) },
			"goaway FRAME_SIZE_ERROR"},
		{"settings of five bytes", settings("12345"), "goaway FRAME_SIZE_ERROR"},
		{"SETTINGS on a stream", func(p *peer) { p.raw(http2.FrameSettings, 0, 1, "") }, "goaway PROTOCOL_ERROR"},
		{"an acknowledgement with settings", func(p *peer) { p.raw(http2.FrameSettings, http2.FlagSettingsAck, 0, setting(1, 1)) },
			"goaway FRAME_SIZE_ERROR"},
		{"push 2", settings(setting(http2.SettingEnablePush, 2)), "goaway PROTOCOL_ERROR"},
		{"a window of 2^31", settings(setting(http2.SettingInitialWindowSize, 1<<31)), "goaway FLOW_CONTROL_ERROR"},
		{"frames of 100", settings(setting(http2.SettingMaxFrameSize, 100)), "goaway PROTOCOL_ERROR"},
		{"frames of 2^24", settings(setting(http2.SettingMaxFrameSize, 1<<24)), "goaway PROTOCOL_ERROR"},
		{"a setting that nobody knows", func(p *peer) { settings(setting(0xbeef, 1))(p); p.ask(1, "/") }, "answer 1 200"},
		{"a ping", func(p *peer) { p.raw(http2.FramePing, 0, 0, "8 bytes.") }, "pong 8 bytes."},
		{"a ping of seven bytes", func(p *peer) { p.raw(http2.FramePing, 0, 0, "7 bytes") }, "goaway FRAME_SIZE_ERROR"},
		{"PING on a stream", func(p *peer) { p.raw(http2.FramePing, 0, 1, "8 bytes.") }, "goaway PROTOCOL_ERROR"},
		{"a pong that nobody asked for", func(p *peer) { p.raw(http2.FramePing, http2.FlagPingAck, 0, "8 bytes."); p.ask(1, "/") },
			"answer 1 200"},
		{"a frame that nobody knows", func(p *peer) { p.raw(0xfe, 0xff, 7, "what"); p.raw(0x99, 0, 0, ""); p.ask(1, "/") }, "answer 1 200"},
		{"a push", func(p *peer) { p.raw(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, uint32s(2)) },
			"goaway PROTOCOL_ERROR"},
		{"a farewell", func(p *peer) { p.must(p.WriteGoAway(0, 0, nil)); p.ask(1, "/") }, "answer 1 200"},
		{"GOAWAY on a stream", func(p *peer) { p.raw(http2.FrameGoAway, 0, 1, uint32s(0, 0)) }, "goaway PROTOCOL_ERROR"},
		{"a farewell of three bytes", func(p *peer) { p.raw(http2.FrameGoAway, 0, 0, "bye") }, "goaway FRAME_SIZE_ERROR"},
	}, func(p *peer) { p.greet() })
}

// TestWindowFrames checks that windows grow by something, up to 2^31-1, and only those of open streams.
func TestWindowFrames(t *testing.T) {
	play(t, []rawCase{
		{"nothing more of all", func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 0, uint32s(0)) }, "goaway PROTOCOL_ERROR"},
		{"nothing more of a stream", func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 1, uint32s(0)) }, "reset 1 PROTOCOL_ERROR"},
		{"the highest bit is nothing", func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 1, uint32s(1<<31)) }, "reset 1 PROTOCOL_ERROR"},
		{"too much of all", func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 0, uint32s(1<<31-1)) }, "goaway FLOW_CONTROL_ERROR"},
		{"too much of a stream", func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 1, uint32s(1<<31-1)) }, "reset 1 FLOW_CONTROL_ERROR"},
		{"too much by settings", func(p *peer) {
			p.must(p.WriteWindowUpdate(1, 1<<31-1-h2wire.DefaultWindow))
			p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: h2wire.DefaultWindow + 1}))
		}, "goaway FLOW_CONTROL_ERROR"},
		{"three bytes", func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 1, "123") }, "goaway FRAME_SIZE_ERROR"},
		{"of an idle stream", func(p *peer) { p.raw(http2.FrameWindowUpdate, 0, 3, uint32s(1)) }, "goaway PROTOCOL_ERROR"},
		{"of a stream that was reset", func(p *peer) {
			p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
			p.must(p.WriteWindowUpdate(1, 1))
			p.ask(3, "/")
		}, "answer 3 200"},
	}, func(p *peer) { p.greet(); p.ask(1, "/hold") })
}

// TestStreamFrames checks frames for streams in each state. Stream 1 waits for its body, the handler of stream 3 runs
// with the complete request, and stream 5 has been answered.
func TestStreamFrames(t *testing.T) {
	play(t, []rawCase{
		{"a reset of no stream", func(p *peer) { p.raw(http2.FrameRSTStream, 0, 0, uint32s(0)) }, "goaway PROTOCOL_ERROR"},
		{"a reset of an idle stream", func(p *peer) { p.raw(http2.FrameRSTStream, 0, 9, uint32s(0)) }, "goaway PROTOCOL_ERROR"},
		{"a reset of three bytes", func(p *peer) { p.raw(http2.FrameRSTStream, 0, 1, "123") }, "goaway FRAME_SIZE_ERROR"},
		{"data of no stream", func(p *peer) { p.raw(http2.FrameData, 0, 0, "x") }, "goaway PROTOCOL_ERROR"},
		{"data of an idle stream", func(p *peer) { p.raw(http2.FrameData, 0, 9, "x") }, "goaway PROTOCOL_ERROR"},
		{"data after the end", func(p *peer) { p.raw(http2.FrameData, 0, 3, "x") }, "reset 3 STREAM_CLOSED"},
		{"data of an ended stream", func(p *peer) { p.raw(http2.FrameData, 0, 5, "x") }, "reset 5 STREAM_CLOSED|goaway STREAM_CLOSED"},
		{"data with too much padding", func(p *peer) { p.raw(http2.FrameData, http2.FlagDataPadded, 1, "\x05xxxx") },
			"goaway PROTOCOL_ERROR"},
		{"data that is all padding", func(p *peer) {
			p.raw(http2.FrameData, http2.FlagDataPadded|http2.FlagDataEndStream, 1, "\x04xxxx")
		}, "answer 1 200"},
		{"padded data without its length", func(p *peer) { p.raw(http2.FrameData, http2.FlagDataPadded, 1, "") },
			"goaway PROTOCOL_ERROR|goaway FRAME_SIZE_ERROR"},
		{"fields on no stream", func(p *peer) { p.raw(http2.FrameHeaders, 4, 0, string(p.head("GET", "/"))) }, "goaway PROTOCOL_ERROR"},
		{"fields on an even stream", func(p *peer) { p.ask(8, "/") }, "goaway PROTOCOL_ERROR"},
		{"fields on an ended stream", func(p *peer) { p.ask(5, "/") }, "goaway STREAM_CLOSED|goaway PROTOCOL_ERROR"},
		{"fields on a lower stream", func(p *peer) { p.ask(9, "/hold"); p.ask(7, "/") }, "goaway STREAM_CLOSED|goaway PROTOCOL_ERROR"},
		{"fields after the end", func(p *peer) { p.ask(3, "/") }, "reset 3 STREAM_CLOSED"},
		{"fields with too much padding", func(p *peer) { p.raw(http2.FrameHeaders, 0xc, 9, "\xff"+string(p.head("GET", "/"))) },
			"goaway PROTOCOL_ERROR"},
		{"fields without their priority", func(p *peer) { p.raw(http2.FrameHeaders, 0x24, 9, "1234") }, "goaway FRAME_SIZE_ERROR"},
		{"a continuation of nothing", func(p *peer) { p.raw(http2.FrameContinuation, 4, 1, "") }, "goaway PROTOCOL_ERROR"},
		{"PRIORITY on stream 0", func(p *peer) { p.raw(http2.FramePriority, 0, 0, uint32s(1)+"x") }, "goaway PROTOCOL_ERROR"},
		{"a priority of four bytes", func(p *peer) { p.raw(http2.FramePriority, 0, 1, uint32s(3)) }, "reset 1 FRAME_SIZE_ERROR"},
		{"a priority before oneself", func(p *peer) { p.raw(http2.FramePriority, 0, 1, uint32s(1)+"x") }, "reset 1 PROTOCOL_ERROR"},
		{"a priority of an idle stream", func(p *peer) { p.raw(http2.FramePriority, 0, 99, uint32s(3)+"x"); p.ask(7, "/") },
			"answer 7 200"},
		{"a request before itself", func(p *peer) { p.raw(http2.FrameHeaders, 0x25, 9, uint32s(9)+"x"+string(p.head("GET", "/"))) },
			"reset 9 PROTOCOL_ERROR"},
		{"a request with priority and padding", func(p *peer) {
			p.raw(http2.FrameHeaders, 0x2d, 9, "\x03"+uint32s(3)+"x"+string(p.head("GET", "/"))+"xxx")
		}, "answer 9 200"},
	}, func(p *peer) {
		p.greet()
		p.offer(1, "/")
		p.ask(3, "/hold")
		p.ask(5, "/")
		p.see("answer 5 200")
	})
}

// TestFieldBlocks checks that the field block of a request comes in one piece, and is compressed as RFC 7541 says.
func TestFieldBlocks(t *testing.T) {
	play(t, []rawCase{
		{"in pieces", func(p *peer) {
			b := string(p.head("GET", "/"))
			p.raw(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, b[:3])
			p.raw(http2.FrameContinuation, 0, 1, "")
			p.raw(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, b[3:])
		}, "answer 1 200"},
		{"interrupted", func(p *peer) {
			p.raw(http2.FrameHeaders, 1, 1, string(p.head("GET", "/")))
			p.raw(http2.FramePing, 0, 0, "8 bytes.")
		}, "goaway PROTOCOL_ERROR"},
		{"interrupted by what nobody knows", func(p *peer) {
			p.raw(http2.FrameHeaders, 1, 1, string(p.head("GET", "/")))
			p.raw(0xfe, 0, 1, "")
		}, "goaway PROTOCOL_ERROR"},
		{"continued on another stream", func(p *peer) {
			p.raw(http2.FrameHeaders, 1, 1, string(p.head("GET", "/")))
			p.raw(http2.FrameContinuation, 4, 3, "")
		}, "goaway PROTOCOL_ERROR"},
		{"an index that is not there", func(p *peer) { p.raw(http2.FrameHeaders, 5, 1, "\xff\xff\x01") }, "goaway COMPRESSION_ERROR"},
		{"a table larger than allowed", func(p *peer) { p.raw(http2.FrameHeaders, 5, 1, "\x3f\xff\xff\x01") }, "goaway COMPRESSION_ERROR"},
		{"cut off", func(p *peer) { p.raw(http2.FrameHeaders, 5, 1, "\x82\x00\x05te") }, "goaway COMPRESSION_ERROR"},
		{"bad on a stream that ended",
			func(p *peer) { p.ask(1, "/"); p.see("answer 1 200"); p.raw(http2.FrameHeaders, 5, 1, "\xff\xff\x01") },
			"goaway COMPRESSION_ERROR|goaway STREAM_CLOSED"},
	}, func(p *peer) { p.greet() })
}

// requestCase sends a request of the fields given, in order, instead of a valid one.
func requestCase(name string, pairs ...string) rawCase {
	return rawCase{name, func(p *peer) { p.raw(http2.FrameHeaders, 5, 1, string(p.fields(pairs...))) }, "reset 1 PROTOCOL_ERROR"}
}

// TestMalformedRequests checks that a malformed request ends its stream, and only that.
func TestMalformedRequests(t *testing.T) {
	const m, s, a, path = ":method", ":scheme", ":authority", ":path"
	good := []string{m, "GET", s, "https", a, "proa", path, "/"}
	with := func(name string, pairs ...string) rawCase {
		return requestCase(name, append(good[:len(good):len(good)], pairs...)...)
	}
	play(t, []rawCase{
		with("a name in upper case", "X-Upper", "x"),
		with("a name with a space", "x y", "x"),
		with("an empty name", "", "x"),
		with("a value with a line break", "x", "a\r\nb: c"),
		with("a pseudo field twice", path, "/x"),
		with("a pseudo field that is of answers", ":status", "200"),
		with("a pseudo field that nobody knows", ":shape", "round"),
		with("connection", "connection", "close"),
		with("keep-alive", "keep-alive", "timeout=5"),
		with("proxy-connection", "proxy-connection", "close"),
		with("transfer-encoding", "transfer-encoding", "chunked"),
		with("upgrade", "upgrade", "websocket"),
		with("te", "te", "gzip"),
		with("a length and no body", "content-length", "1"),
		with("two lengths", "content-length", "0", "content-length", "1"),
		with("a length that is none", "content-length", "-1"),
		with("a length of nothing", "content-length", ""),
		requestCase("an empty pseudo field twice", m, "GET", s, "https", a, "proa", path, "", path, "/"),
		requestCase("a pseudo field behind others", m, "GET", s, "https", path, "/", "x", "x", a, "proa"),
		requestCase("no method", s, "https", a, "proa", path, "/"),
		requestCase("no scheme", m, "GET", a, "proa", path, "/"),
		requestCase("no path", m, "GET", s, "https", a, "proa"),
		requestCase("an empty path", m, "GET", s, "https", a, "proa", path, ""),
		requestCase("a path that is none", m, "GET", s, "https", a, "proa", path, "x"),
		requestCase("a method that is none", m, "G T", s, "https", a, "proa", path, "/"),
		requestCase("an authority that is none", m, "GET", s, "https", a, "pr oa", path, "/"),
		requestCase("CONNECT with a path", m, "CONNECT", s, "https", a, "proa", path, "/"),
		requestCase("CONNECT to nowhere", m, "CONNECT"),
		requestCase("nothing"),
		{"te with trailers", func(p *peer) { p.ask(1, "/", "te", "trailers") }, "answer 1 200"},
	}, func(p *peer) { p.greet() })
}

// TestMalformedBodies checks that a body has its Content-Length, and that only a trailer follows it.
func TestMalformedBodies(t *testing.T) {
	end := http2.Flags(http2.FlagDataEndStream)
	trailer := func(flags http2.Flags, pairs ...string) func(*peer) {
		return func(p *peer) {
			p.offer(1, "/", "content-length", "2")
			p.raw(http2.FrameData, 0, 1, "xx")
			p.raw(http2.FrameHeaders, flags, 1, string(p.fields(pairs...)))
		}
	}
	sized := func(size, data string) func(*peer) {
		return func(p *peer) { p.offer(1, "/", "content-length", size); p.raw(http2.FrameData, end, 1, data) }
	}
	play(t, []rawCase{
		{"too little", sized("5", "1234"), "reset 1 PROTOCOL_ERROR"},
		{"too much", sized("5", "123456"), "reset 1 PROTOCOL_ERROR"},
		{"too little of much", sized("500000", "1234"), "reset 1 PROTOCOL_ERROR"},
		{"something instead of nothing", sized("0", "1"), "reset 1 PROTOCOL_ERROR"},
		{"as much as was said", sized("5", "12345"), "answer 1 200"},
		{"too much before the end", func(p *peer) { p.offer(1, "/", "content-length", "1"); p.raw(http2.FrameData, 0, 1, "12") },
			"reset 1 PROTOCOL_ERROR"},
		{"a trailer after too little", func(p *peer) {
			p.offer(1, "/", "content-length", "2")
			p.raw(http2.FrameHeaders, 5, 1, string(p.fields("x", "x")))
		}, "reset 1 PROTOCOL_ERROR"},
		{"a trailer", trailer(5, "x", "x"), "answer 1 200"},
		{"a trailer that is not the end", trailer(4, "x", "x"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with a path", trailer(5, ":path", "/"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with an empty path", trailer(5, ":path", ""), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with a status", trailer(5, ":status", "200"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer in upper case", trailer(5, "X", "x"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer of a request that was refused", func(p *peer) {
			p.offer(1, "/", "te", "gzip")
			p.raw(http2.FrameHeaders, 5, 1, string(p.fields("x", "x")))
		}, "reset 1 PROTOCOL_ERROR"},
		{"data after the trailer", func(p *peer) {
			p.offer(1, "/hold")
			p.raw(http2.FrameHeaders, 5, 1, string(p.fields("x", "x")))
			p.raw(http2.FrameData, 0, 1, "x")
		}, "reset 1 STREAM_CLOSED"},
	}, func(p *peer) { p.greet() })
}

// TestFramesAfterReset checks that frames which a client sends before it learns that the server has reset a stream are
// no error.
func TestFramesAfterReset(t *testing.T) {
	then := func(send func(*peer)) func(*peer) {
		return func(p *peer) { send(p); p.ask(3, "/") }
	}
	play(t, []rawCase{
		{"data", then(func(p *peer) { p.raw(http2.FrameData, 0, 1, "x") }), "answer 3 200|reset 1 STREAM_CLOSED"},
		{"a trailer", then(func(p *peer) { p.raw(http2.FrameHeaders, 5, 1, string(p.fields("x", "x"))) }),
			"answer 3 200|reset 1 STREAM_CLOSED"},
		{"a window", then(func(p *peer) { p.must(p.WriteWindowUpdate(1, 1)) }), "answer 3 200"},
		{"a reset", then(func(p *peer) { p.must(p.WriteRSTStream(1, http2.ErrCodeCancel)) }), "answer 3 200"},
	}, func(p *peer) {
		p.greet()
		p.offer(1, "/bytes/5") // its body is not read
		p.see("answer 1 200")
		p.see("reset 1 NO_ERROR")
	})
}

// TestWindowsOfAnswers checks that a response is sent as the windows of its stream and of the connection allow.
func TestWindowsOfAnswers(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), plain, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	const size = 200_000
	p.ask(1, "/bytes/"+strconv.Itoa(size))
	p.see("answer 1 200")
	p.stuck(1)
	p.must(p.WriteWindowUpdate(1, 10))
	p.body(1, 10)
	p.stuck(1)
	p.must(p.WriteWindowUpdate(1, size)) // now the connection is the limit
	p.body(1, h2wire.DefaultWindow)
	p.stuck(1)
	p.must(p.WriteWindowUpdate(0, 100))
	p.body(1, h2wire.DefaultWindow+100)
	p.stuck(1)
	p.must(p.WriteWindowUpdate(0, size))
	if !bytes.Equal(p.body(1, size), pattern(size)) {
		t.Error("the answer is another")
	}
	p.finished(1)
}

// finished waits for the end of a response all of whose body has been read, if it was not with the last piece.
func (p *peer) finished(id uint32) {
	p.Helper()
	p.until("the stream has ended", func() bool { return p.at(func(c *conn) bool { return c.streams[id] == nil }) })
	p.alive()
}

// at accesses the one connection of the server.
func (p *peer) at(look func(*conn) bool) bool {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	for c := range p.server.conns {
		c.mu.Lock()
		defer c.mu.Unlock()
		return look(c)
	}
	return false
}

// TestNegativeWindows checks that a client may reduce a window: one below zero must grow before anything is sent.
func TestNegativeWindows(t *testing.T) {
	t.Parallel()
	initial := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	p := dialed(t, rawConfig(), plain, initial(100))
	p.ask(1, "/bytes/1000")
	p.see("answer 1 200")
	p.body(1, 100)
	p.must(p.WriteSettings(initial(50))) // -50
	p.must(p.WriteWindowUpdate(1, 50))   // 0
	p.stuck(1)
	p.must(p.WriteWindowUpdate(1, 10))
	p.body(1, 110)
	p.stuck(1)
	p.must(p.WriteSettings(initial(150)))
	p.body(1, 210)
	p.must(p.WriteSettings(initial(0))) // -150
	p.must(p.WriteSettings(initial(1000)))
	if !bytes.Equal(p.body(1, 1000), pattern(1000)) {
		t.Error("the answer is another")
	}
	p.finished(1)
}

// TestEndWithoutWindow checks that the end of a response needs no window, so it is sent even when that is below zero.
func TestEndWithoutWindow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := dialed(t, rawConfig(), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(pattern(100))
		_ = http.NewResponseController(w).Flush()
		<-release
	})
	p.ask(1, "/")
	p.see("answer 1 200")
	p.body(1, 100)
	p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	p.alive() // it has been read
	close(release)
	for {
		f, err := p.next()
		p.must(err)
		switch f := f.(type) {
		case *http2.RSTStreamFrame:
			t.Fatalf("got a reset: %v", f.ErrCode)
		case *http2.DataFrame:
			if !f.StreamEnded() || len(f.Data()) > 0 {
				t.Fatalf("got %v", f)
			}
			return
		}
	}
}

// TestFrameSizes checks that no frame of a response is larger than the client allows, for the header and for the body.
func TestFrameSizes(t *testing.T) {
	t.Parallel()
	const size, fields = 300_000, 9
	for _, most := range []int{h2wire.SmallestFrame, 20_000, 1 << 20} {
		t.Run(strconv.Itoa(most), func(t *testing.T) {
			t.Parallel()
			p := dialed(t, rawConfig(), func(w http.ResponseWriter, r *http.Request) {
				for i := range fields {
					w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 10_000))
				}
				plain(w, r)
			}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: uint32(most)}, http2.Setting{ID: http2.SettingInitialWindowSize,
				Val: size})
			p.SetMaxReadFrameSize(uint32(most)) // more is an error
			p.ReadMetaHeaders = nil
			p.must(p.WriteWindowUpdate(0, size))
			p.ask(1, "/bytes/"+strconv.Itoa(size))
			var block []byte
			continued := 0
			for whole := false; !whole; {
				f, err := p.next()
				p.must(err)
				switch f := f.(type) {
				case *http2.HeadersFrame:
					block, whole = append(block, f.HeaderBlockFragment()...), f.HeadersEnded()
				case *http2.ContinuationFrame:
					block, whole = append(block, f.HeaderBlockFragment()...), f.HeadersEnded()
					continued++
				}
			}
			got, err := hpack.NewDecoder(h2wire.DefaultTableSize, nil).DecodeFull(block)
			if err != nil || len(got) < fields {
				t.Errorf("got %d fields, %v", len(got), err)
			}
			if want := (len(block)+most-1)/most - 1; continued < want {
				t.Errorf("a block of %d bytes came with %d continuations, want %d", len(block), continued, want)
			}
			if !bytes.Equal(p.body(1, size), pattern(size)) {
				t.Error("the answer is another")
			}
		})
	}
}

// TestWithoutTable checks that a client without an HPACK table gets fields that need none, and is told so.
func TestWithoutTable(t *testing.T) {
	t.Parallel()
	p := dialed(t, rawConfig(), plain, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	p.ReadMetaHeaders = nil
	for id := uint32(1); id < 7; id += 2 {
		p.ask(id, "/")
		for block := []byte(nil); block == nil; {
			f, err := p.next()
			p.must(err)
			h, ok := f.(*http2.HeadersFrame)
			if !ok {
				continue
			}
			block = h.HeaderBlockFragment()
			if id == 1 && block[0] != 0x20 {
				t.Errorf("the first block begins with %#x, not with the size of the table", block[0])
			}
			if got, err := hpack.NewDecoder(0, nil).DecodeFull(block); err != nil || len(got) < 3 {
				t.Errorf("got %v, %v", got, err)
			}
		}
	}
}
