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

// testTimeout is how long a test waits for something that must happen.
const testTimeout = 10 * time.Second

// rawClient is an HTTP/2 client that sends single frames, valid or not. When the test ends it checks that every handler
// of its connection has returned and that no memory is counted for the connection.
type rawClient struct {
	*testing.T
	*http2.Framer
	server    *connections
	socket    *net.TCPConn
	ended     chan struct{} // serve has returned
	running   atomic.Int64  // handlers
	encoder   *hpack.Encoder
	block     bytes.Buffer
	bodies    map[uint32][]byte // received parts of responses
	blockable *blockableConn
}

// blockableConn is the server's end of a connection, whose next write can be blocked.
type blockableConn struct {
	*net.TCPConn
	armed            atomic.Bool
	blocked, release chan struct{}
}

func (g *blockableConn) Write(p []byte) (int, error) {
	if g.armed.CompareAndSwap(true, false) {
		close(g.blocked)
		<-g.release
	}
	return g.TCPConn.Write(p)
}

func rawConfig() Config {
	return Config{Streams: 10, Header: 16 << 10, Greeting: testTimeout, Idle: time.Minute, Log: slog.New(slog.DiscardHandler)}
}

// dialWithoutPreface connects a client that has not sent anything yet.
func dialWithoutPreface(t *testing.T, cfg Config, h http.HandlerFunc) *rawClient {
	t.Helper()
	p := &rawClient{T: t, server: newConnections(cfg), ended: make(chan struct{}), bodies: map[uint32][]byte{}}
	p.connect(h)
	return p
}

// connect connects to the server, whose state may have been changed before.
func (p *rawClient) connect(h http.HandlerFunc) {
	p.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	p.must(err)
	p.socket, err = net.DialTCP("tcp", nil, l.Addr().(*net.TCPAddr))
	p.must(err)
	accepted, err := l.AcceptTCP()
	p.must(err)
	p.must(l.Close())
	p.must(accepted.SetWriteBuffer(16 << 10))
	p.Framer = http2.NewFramer(p.socket, p.socket)
	p.AllowIllegalWrites = true
	p.ReadMetaHeaders = hpack.NewDecoder(h2wire.DefaultTableSize, nil)
	p.encoder = hpack.NewEncoder(&p.block)
	p.blockable = &blockableConn{TCPConn: accepted, blocked: make(chan struct{}), release: make(chan struct{})}
	go func() {
		defer close(p.ended)
		defer accepted.Close() // as http.Server does
		p.server.serve(p.Context(), p.blockable, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.running.Add(1)
			defer p.running.Add(-1)
			h(w, r)
		}))
	}()
	p.Cleanup(func() {
		_ = p.socket.Close()
		p.waitClosed()
		p.waitUntil("all handlers end", func() bool { return p.running.Load() == 0 })
		p.waitUntil("no memory is held", func() bool {
			return p.server.unauthenticated.held.Load() == 0 && p.server.authenticated.held.Load() == 0
		})
	})
}

// dialWithPreface connects a client and sends its preface with these settings.
func dialWithPreface(t *testing.T, cfg Config, h http.HandlerFunc, settings ...http2.Setting) *rawClient {
	t.Helper()
	p := dialWithoutPreface(t, cfg, h)
	p.sendPreface(settings...)
	return p
}

func (p *rawClient) sendPreface(settings ...http2.Setting) {
	p.Helper()
	p.sendText(h2wire.Preface)
	p.must(p.WriteSettings(settings...))
}

// authenticate makes the server treat the connection as authenticated.
func (p *rawClient) authenticate() {
	p.Helper()
	p.waitUntil("the connection is authenticated", func() bool { return p.withConn(func(c *conn) bool { c.authenticate(); return true }) })
}

func (p *rawClient) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *rawClient) sendText(text string) {
	p.Helper()
	_, err := io.WriteString(p.socket, text)
	p.must(err)
}

// waitUntil polls until a condition is true.
func (p *rawClient) waitUntil(what string, is func() bool) {
	p.Helper()
	for end := time.Now().Add(testTimeout); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			p.Fatalf("condition is still false: %s", what)
		}
	}
}

// waitClosed waits until the server has closed the connection.
func (p *rawClient) waitClosed() {
	p.Helper()
	select {
	case <-p.ended:
	case <-time.After(testTimeout):
		p.Fatal("the connection is still served")
	}
}

// encodeFields encodes pairs of names and values.
func (p *rawClient) encodeFields(pairs ...string) []byte {
	p.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		p.must(p.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}))
	}
	return bytes.Clone(p.block.Bytes())
}

// encodeRequest returns the header of a request, with further fields.
func (p *rawClient) encodeRequest(method, path string, more ...string) []byte {
	return p.encodeFields(append([]string{":method", method, ":scheme", "https", ":authority", "proa", ":path", path}, more...)...)
}

// sendRequest sends a request without a body.
func (p *rawClient) sendRequest(id uint32, path string, more ...string) {
	p.Helper()
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encodeRequest("GET", path, more...), EndStream: true,
		EndHeaders: true}))
}

// sendRequestHeader sends the header of a request whose body follows.
func (p *rawClient) sendRequestHeader(id uint32, path string, more ...string) {
	p.Helper()
	p.must(p.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: p.encodeRequest("POST", path, more...), EndHeaders: true}))
}

// sendFrame sends any frame.
func (p *rawClient) sendFrame(kind http2.FrameType, flags http2.Flags, id uint32, payload string) {
	p.Helper()
	p.must(p.WriteRawFrame(kind, flags, id, []byte(payload)))
}

// nextFrame reads the next frame, and keeps the parts of bodies.
func (p *rawClient) nextFrame() (http2.Frame, error) {
	_ = p.socket.SetReadDeadline(time.Now().Add(testTimeout))
	f, err := p.ReadFrame()
	if d, ok := f.(*http2.DataFrame); ok && err == nil {
		p.bodies[d.StreamID] = append(p.bodies[d.StreamID], d.Data()...)
	}
	return f, err
}

// nextEvent returns the next frame that ends something, as text. Other frames are skipped.
func (p *rawClient) nextEvent() string {
	p.Helper()
	for {
		f, err := p.nextFrame()
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

// expectEvent checks that the next event is one of several.
func (p *rawClient) expectEvent(want ...string) {
	p.Helper()
	got := p.nextEvent()
	for _, w := range want {
		if got == w {
			return
		}
	}
	p.Fatalf("got %q, want %q", got, want)
}

// expectAlive checks that the connection still works. Resets that come before are skipped, and what is expected besides.
func (p *rawClient) expectAlive(expected ...string) {
	p.Helper()
	expected = append(expected, "reset ")
	p.must(p.WritePing(false, [8]byte([]byte("alive???"))))
	for {
		switch got := p.nextEvent(); {
		case got == "pong alive???":
			return
		case !slices.ContainsFunc(expected, func(prefix string) bool { return strings.HasPrefix(got, prefix) }):
			p.Fatalf("got %q of a connection that should live", got)
		}
	}
}

// readBody reads until size bytes of a response have arrived, and fails when more do.
func (p *rawClient) readBody(id uint32, size int) []byte {
	p.Helper()
	for len(p.bodies[id]) < size {
		f, err := p.nextFrame()
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

// expectNoMoreData checks that no further data of a response arrives.
func (p *rawClient) expectNoMoreData(id uint32) {
	p.Helper()
	before := len(p.bodies[id])
	for range 3 { // each round trip gives a handler time to send
		p.expectAlive()
	}
	if now := len(p.bodies[id]); now != before {
		p.Fatalf("got %d bytes without a window", now-before)
	}
}

// basicHandler is the handler of most tests: it holds a request until its client disconnects, sends as many bytes as
// requested, or counts a body.
func basicHandler(w http.ResponseWriter, r *http.Request) {
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

// pattern returns n bytes, each of them different from the bytes next to it.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i % 251)
	}
	return b
}

func encodeUint32s(values ...uint32) string {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, v)
	}
	return string(b)
}

// encodeSetting returns one entry of a SETTINGS frame.
func encodeSetting(id http2.SettingID, value uint32) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(id))) + encodeUint32s(value)
}

// rawCase is what a client sends, often against the protocol, and the event with which the server reacts.
type rawCase struct {
	name string
	send func(*rawClient)
	want string // the event, or several allowed ones separated by "|"
}

// runRawCases runs each case on a new connection, which begin prepares. After an error of a stream the connection must
// still work.
func runRawCases(t *testing.T, cases []rawCase, begin func(*rawClient)) {
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := dialWithoutPreface(t, rawConfig(), basicHandler)
			begin(p)
			c.send(p)
			p.expectEvent(strings.Split(c.want, "|")...)
			if strings.HasPrefix(c.want, "reset") {
				p.expectAlive()
			}
		})
	}
}

// TestPreface checks that a connection begins with the preface and the settings of the client.
func TestPreface(t *testing.T) {
	runRawCases(t, []rawCase{
		{"another preface", func(p *rawClient) { p.sendText(strings.Repeat("GET / HTTP/1.1\r\n\r\n", 2)) }, "goaway PROTOCOL_ERROR"},
		{"a ping first", func(p *rawClient) { p.sendText(h2wire.Preface); p.must(p.WritePing(false, [8]byte{})) }, "goaway PROTOCOL_ERROR"},
		{"a request first", func(p *rawClient) { p.sendText(h2wire.Preface); p.sendRequest(1, "/") }, "goaway PROTOCOL_ERROR"},
		{"an acknowledgement first", func(p *rawClient) { p.sendText(h2wire.Preface); p.must(p.WriteSettingsAck()) },
			"goaway PROTOCOL_ERROR"},
		{"nothing wrong", func(p *rawClient) { p.sendPreface(); p.sendRequest(1, "/") }, "answer 1 200"},
	}, func(*rawClient) {})
}

// TestConnectionFrames checks the sizes and places of frames that are about the connection.
func TestConnectionFrames(t *testing.T) {
	settings := func(payload string) func(*rawClient) {
		return func(p *rawClient) { p.sendFrame(http2.FrameSettings, 0, 0, payload) }
	}
	runRawCases(t, []rawCase{
		{"a frame too large", func(p *rawClient) { p.sendFrame(http2.FrameType(99), 0, 0, strings.Repeat("x", 16<<10+1)) },
			"goaway FRAME_SIZE_ERROR"},
		{"data too large", func(p *rawClient) {
			p.sendRequestHeader(1, "/")
			p.sendFrame(http2.FrameData, 0, 1, strings.Repeat("x", 16<<10+1))
		},
			"goaway FRAME_SIZE_ERROR"},
		{"settings of five bytes", settings("12345"), "goaway FRAME_SIZE_ERROR"},
		{"SETTINGS on a stream", func(p *rawClient) { p.sendFrame(http2.FrameSettings, 0, 1, "") }, "goaway PROTOCOL_ERROR"},
		{"an acknowledgement with settings", func(p *rawClient) {
			p.sendFrame(http2.FrameSettings, http2.FlagSettingsAck, 0,
				encodeSetting(1, 1))
		},
			"goaway FRAME_SIZE_ERROR"},
		{"push 2", settings(encodeSetting(http2.SettingEnablePush, 2)), "goaway PROTOCOL_ERROR"},
		{"a window of 2^31", settings(encodeSetting(http2.SettingInitialWindowSize, 1<<31)), "goaway FLOW_CONTROL_ERROR"},
		{"frames of 100", settings(encodeSetting(http2.SettingMaxFrameSize, 100)), "goaway PROTOCOL_ERROR"},
		{"frames of 2^24", settings(encodeSetting(http2.SettingMaxFrameSize, 1<<24)), "goaway PROTOCOL_ERROR"},
		{"an unknown setting", func(p *rawClient) { settings(encodeSetting(0xbeef, 1))(p); p.sendRequest(1, "/") },
			"answer 1 200"},
		{"a ping", func(p *rawClient) { p.sendFrame(http2.FramePing, 0, 0, "8 bytes.") }, "pong 8 bytes."},
		{"a ping of seven bytes", func(p *rawClient) { p.sendFrame(http2.FramePing, 0, 0, "7 bytes") }, "goaway FRAME_SIZE_ERROR"},
		{"PING on a stream", func(p *rawClient) { p.sendFrame(http2.FramePing, 0, 1, "8 bytes.") }, "goaway PROTOCOL_ERROR"},
		{"an unsolicited PING acknowledgement", func(p *rawClient) {
			p.sendFrame(http2.FramePing, http2.FlagPingAck, 0, "8 bytes.")
			p.sendRequest(1, "/")
		},
			"answer 1 200"},
		{"an unknown frame", func(p *rawClient) {
			p.sendFrame(0xfe, 0xff, 7, "what")
			p.sendFrame(0x99, 0, 0, "")
			p.sendRequest(1, "/")
		}, "answer 1 200"},
		{"a push", func(p *rawClient) {
			p.sendFrame(http2.FramePushPromise, http2.FlagPushPromiseEndHeaders, 1, encodeUint32s(2))
		},
			"goaway PROTOCOL_ERROR"},
		{"GOAWAY", func(p *rawClient) { p.must(p.WriteGoAway(0, 0, nil)); p.sendRequest(1, "/") }, "answer 1 200"},
		{"GOAWAY on a stream", func(p *rawClient) { p.sendFrame(http2.FrameGoAway, 0, 1, encodeUint32s(0, 0)) }, "goaway PROTOCOL_ERROR"},
		{"GOAWAY of three bytes", func(p *rawClient) { p.sendFrame(http2.FrameGoAway, 0, 0, "bye") }, "goaway FRAME_SIZE_ERROR"},
	}, func(p *rawClient) { p.sendPreface() })
}

// TestWindowFrames checks that a WINDOW_UPDATE frame adds at least 1, to at most 2^31-1, and only to a stream that was opened.
func TestWindowFrames(t *testing.T) {
	runRawCases(t, []rawCase{
		{"nothing more of all", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 0, encodeUint32s(0)) },
			"goaway PROTOCOL_ERROR"},
		{"nothing more of a stream", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 1, encodeUint32s(0)) },
			"reset 1 PROTOCOL_ERROR"},
		{"the highest bit is nothing", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 1, encodeUint32s(1<<31)) },
			"reset 1 PROTOCOL_ERROR"},
		{"too much of all", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 0, encodeUint32s(1<<31-1)) },
			"goaway FLOW_CONTROL_ERROR"},
		{"too much of a stream", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 1, encodeUint32s(1<<31-1)) },
			"reset 1 FLOW_CONTROL_ERROR"},
		{"too much by settings", func(p *rawClient) {
			p.must(p.WriteWindowUpdate(1, 1<<31-1-h2wire.DefaultWindow))
			p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: h2wire.DefaultWindow + 1}))
		}, "goaway FLOW_CONTROL_ERROR"},
		{"three bytes", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 1, "123") }, "goaway FRAME_SIZE_ERROR"},
		{"of an idle stream", func(p *rawClient) { p.sendFrame(http2.FrameWindowUpdate, 0, 3, encodeUint32s(1)) }, "goaway PROTOCOL_ERROR"},
		{"of a stream that was reset", func(p *rawClient) {
			p.must(p.WriteRSTStream(1, http2.ErrCodeCancel))
			p.must(p.WriteWindowUpdate(1, 1))
			p.sendRequest(3, "/")
		}, "answer 3 200"},
	}, func(p *rawClient) { p.sendPreface(); p.sendRequest(1, "/hold") })
}

// TestStreamFrames checks frames for streams in each state. Stream 1 waits for its body, the handler of stream 3 runs
// with the complete request, and stream 5 has been answered.
func TestStreamFrames(t *testing.T) {
	runRawCases(t, []rawCase{
		{"a reset of no stream", func(p *rawClient) { p.sendFrame(http2.FrameRSTStream, 0, 0, encodeUint32s(0)) }, "goaway PROTOCOL_ERROR"},
		{"a reset of an idle stream", func(p *rawClient) { p.sendFrame(http2.FrameRSTStream, 0, 9, encodeUint32s(0)) },
			"goaway PROTOCOL_ERROR"},
		{"a reset of three bytes", func(p *rawClient) { p.sendFrame(http2.FrameRSTStream, 0, 1, "123") }, "goaway FRAME_SIZE_ERROR"},
		{"data of no stream", func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 0, "x") }, "goaway PROTOCOL_ERROR"},
		{"data of an idle stream", func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 9, "x") }, "goaway PROTOCOL_ERROR"},
		{"data after the end", func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 3, "x") }, "reset 3 STREAM_CLOSED"},
		{"data of an ended stream", func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 5, "x") },
			"reset 5 STREAM_CLOSED|goaway STREAM_CLOSED"},
		{"data with too much padding", func(p *rawClient) { p.sendFrame(http2.FrameData, http2.FlagDataPadded, 1, "\x05xxxx") },
			"goaway PROTOCOL_ERROR"},
		{"data that is all padding", func(p *rawClient) {
			p.sendFrame(http2.FrameData, http2.FlagDataPadded|http2.FlagDataEndStream, 1, "\x04xxxx")
		}, "answer 1 200"},
		{"padded data without its length", func(p *rawClient) { p.sendFrame(http2.FrameData, http2.FlagDataPadded, 1, "") },
			"goaway PROTOCOL_ERROR|goaway FRAME_SIZE_ERROR"},
		{"fields on no stream", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 4, 0, string(p.encodeRequest("GET", "/"))) },
			"goaway PROTOCOL_ERROR"},
		{"fields on an even stream", func(p *rawClient) { p.sendRequest(8, "/") }, "goaway PROTOCOL_ERROR"},
		{"fields on an ended stream", func(p *rawClient) { p.sendRequest(5, "/") }, "goaway STREAM_CLOSED|goaway PROTOCOL_ERROR"},
		{"fields on a lower stream", func(p *rawClient) { p.sendRequest(9, "/hold"); p.sendRequest(7, "/") },
			"goaway STREAM_CLOSED|goaway PROTOCOL_ERROR"},
		{"fields after the end", func(p *rawClient) { p.sendRequest(3, "/") }, "reset 3 STREAM_CLOSED"},
		{"fields with too much padding", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 0xc, 9, "\xff"+string(p.encodeRequest("GET", "/")))
		},
			"goaway PROTOCOL_ERROR"},
		{"fields without their priority", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 0x24, 9, "1234") },
			"goaway FRAME_SIZE_ERROR"},
		{"a continuation of nothing", func(p *rawClient) { p.sendFrame(http2.FrameContinuation, 4, 1, "") }, "goaway PROTOCOL_ERROR"},
		{"PRIORITY on stream 0", func(p *rawClient) { p.sendFrame(http2.FramePriority, 0, 0, encodeUint32s(1)+"x") },
			"goaway PROTOCOL_ERROR"},
		{"a priority of four bytes", func(p *rawClient) { p.sendFrame(http2.FramePriority, 0, 1, encodeUint32s(3)) },
			"reset 1 FRAME_SIZE_ERROR"},
		{"a priority before oneself", func(p *rawClient) { p.sendFrame(http2.FramePriority, 0, 1, encodeUint32s(1)+"x") },
			"reset 1 PROTOCOL_ERROR"},
		{"a priority of an idle stream", func(p *rawClient) {
			p.sendFrame(http2.FramePriority, 0, 99, encodeUint32s(3)+"x")
			p.sendRequest(7, "/")
		},
			"answer 7 200"},
		{"a request before itself", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 0x25, 9, encodeUint32s(9)+"x"+string(p.encodeRequest("GET", "/")))
		},
			"reset 9 PROTOCOL_ERROR"},
		{"a request with priority and padding", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 0x2d, 9, "\x03"+encodeUint32s(3)+"x"+string(p.encodeRequest("GET", "/"))+"xxx")
		}, "answer 9 200"},
	}, func(p *rawClient) {
		p.sendPreface()
		p.sendRequestHeader(1, "/")
		p.sendRequest(3, "/hold")
		p.sendRequest(5, "/")
		p.expectEvent("answer 5 200")
	})
}

// TestFieldBlocks checks that the field block of a request comes in one piece, and is compressed as RFC 7541 says.
func TestFieldBlocks(t *testing.T) {
	runRawCases(t, []rawCase{
		{"in pieces", func(p *rawClient) {
			b := string(p.encodeRequest("GET", "/"))
			p.sendFrame(http2.FrameHeaders, http2.FlagHeadersEndStream, 1, b[:3])
			p.sendFrame(http2.FrameContinuation, 0, 1, "")
			p.sendFrame(http2.FrameContinuation, http2.FlagContinuationEndHeaders, 1, b[3:])
		}, "answer 1 200"},
		{"interrupted", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 1, 1, string(p.encodeRequest("GET", "/")))
			p.sendFrame(http2.FramePing, 0, 0, "8 bytes.")
		}, "goaway PROTOCOL_ERROR"},
		{"interrupted by an unknown frame", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 1, 1, string(p.encodeRequest("GET", "/")))
			p.sendFrame(0xfe, 0, 1, "")
		}, "goaway PROTOCOL_ERROR"},
		{"continued on another stream", func(p *rawClient) {
			p.sendFrame(http2.FrameHeaders, 1, 1, string(p.encodeRequest("GET", "/")))
			p.sendFrame(http2.FrameContinuation, 4, 3, "")
		}, "goaway PROTOCOL_ERROR"},
		{"an index that is not there", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, "\xff\xff\x01") },
			"goaway COMPRESSION_ERROR"},
		{"a table larger than allowed", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, "\x3f\xff\xff\x01") },
			"goaway COMPRESSION_ERROR"},
		{"cut off", func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, "\x82\x00\x05te") }, "goaway COMPRESSION_ERROR"},
		{"bad on a stream that ended",
			func(p *rawClient) {
				p.sendRequest(1, "/")
				p.expectEvent("answer 1 200")
				p.sendFrame(http2.FrameHeaders, 5, 1, "\xff\xff\x01")
			},
			"goaway COMPRESSION_ERROR|goaway STREAM_CLOSED"},
	}, func(p *rawClient) { p.sendPreface() })
}

// malformedRequestCase sends a request of the fields given, in order, instead of a valid one.
func malformedRequestCase(name string, pairs ...string) rawCase {
	return rawCase{name, func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields(pairs...))) },
		"reset 1 PROTOCOL_ERROR"}
}

// TestMalformedRequests checks that a malformed request ends its stream, and only that.
func TestMalformedRequests(t *testing.T) {
	const m, s, a, path = ":method", ":scheme", ":authority", ":path"
	good := []string{m, "GET", s, "https", a, "proa", path, "/"}
	withFields := func(name string, pairs ...string) rawCase {
		return malformedRequestCase(name, append(good[:len(good):len(good)], pairs...)...)
	}
	runRawCases(t, []rawCase{
		withFields("a name in upper case", "X-Upper", "x"),
		withFields("a name with a space", "x y", "x"),
		withFields("an empty name", "", "x"),
		withFields("a value with a line break", "x", "a\r\nb: c"),
		withFields("a pseudo field twice", path, "/x"),
		withFields("a pseudo field that is of answers", ":status", "200"),
		withFields("an unknown pseudo field", ":shape", "round"),
		withFields("connection", "connection", "close"),
		withFields("keep-alive", "keep-alive", "timeout=5"),
		withFields("proxy-connection", "proxy-connection", "close"),
		withFields("transfer-encoding", "transfer-encoding", "chunked"),
		withFields("upgrade", "upgrade", "websocket"),
		withFields("te", "te", "gzip"),
		withFields("a length and no body", "content-length", "1"),
		withFields("two lengths", "content-length", "0", "content-length", "1"),
		withFields("a length that is none", "content-length", "-1"),
		withFields("a length of nothing", "content-length", ""),
		malformedRequestCase("an empty pseudo field twice", m, "GET", s, "https", a, "proa", path, "", path, "/"),
		malformedRequestCase("a pseudo field behind others", m, "GET", s, "https", path, "/", "x", "x", a, "proa"),
		malformedRequestCase("no method", s, "https", a, "proa", path, "/"),
		malformedRequestCase("no scheme", m, "GET", a, "proa", path, "/"),
		malformedRequestCase("no path", m, "GET", s, "https", a, "proa"),
		malformedRequestCase("an empty path", m, "GET", s, "https", a, "proa", path, ""),
		malformedRequestCase("a path that is none", m, "GET", s, "https", a, "proa", path, "x"),
		malformedRequestCase("a method that is none", m, "G T", s, "https", a, "proa", path, "/"),
		malformedRequestCase("an authority that is none", m, "GET", s, "https", a, "pr oa", path, "/"),
		malformedRequestCase("CONNECT with a path", m, "CONNECT", s, "https", a, "proa", path, "/"),
		malformedRequestCase("CONNECT to nowhere", m, "CONNECT"),
		malformedRequestCase("nothing"),
		{"te with trailers", func(p *rawClient) { p.sendRequest(1, "/", "te", "trailers") }, "answer 1 200"},
	}, func(p *rawClient) { p.sendPreface() })
}

// TestMalformedBodies checks that a body has its Content-Length, and that only a trailer follows it.
func TestMalformedBodies(t *testing.T) {
	end := http2.Flags(http2.FlagDataEndStream)
	trailer := func(flags http2.Flags, pairs ...string) func(*rawClient) {
		return func(p *rawClient) {
			p.sendRequestHeader(1, "/", "content-length", "2")
			p.sendFrame(http2.FrameData, 0, 1, "xx")
			p.sendFrame(http2.FrameHeaders, flags, 1, string(p.encodeFields(pairs...)))
		}
	}
	sized := func(size, data string) func(*rawClient) {
		return func(p *rawClient) {
			p.sendRequestHeader(1, "/", "content-length", size)
			p.sendFrame(http2.FrameData, end, 1, data)
		}
	}
	runRawCases(t, []rawCase{
		{"too little", sized("5", "1234"), "reset 1 PROTOCOL_ERROR"},
		{"too much", sized("5", "123456"), "reset 1 PROTOCOL_ERROR"},
		{"too little of much", sized("500000", "1234"), "reset 1 PROTOCOL_ERROR"},
		{"something instead of nothing", sized("0", "1"), "reset 1 PROTOCOL_ERROR"},
		{"as much as the Content-Length", sized("5", "12345"), "answer 1 200"},
		{"too much before the end", func(p *rawClient) {
			p.sendRequestHeader(1, "/", "content-length", "1")
			p.sendFrame(http2.FrameData, 0, 1, "12")
		},
			"reset 1 PROTOCOL_ERROR"},
		{"a trailer after too little", func(p *rawClient) {
			p.sendRequestHeader(1, "/", "content-length", "2")
			p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields("x", "x")))
		}, "reset 1 PROTOCOL_ERROR"},
		{"a trailer", trailer(5, "x", "x"), "answer 1 200"},
		{"a trailer that is not the end", trailer(4, "x", "x"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with a path", trailer(5, ":path", "/"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with an empty path", trailer(5, ":path", ""), "reset 1 PROTOCOL_ERROR"},
		{"a trailer with a status", trailer(5, ":status", "200"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer in upper case", trailer(5, "X", "x"), "reset 1 PROTOCOL_ERROR"},
		{"a trailer of a request that was refused", func(p *rawClient) {
			p.sendRequestHeader(1, "/", "te", "gzip")
			p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields("x", "x")))
		}, "reset 1 PROTOCOL_ERROR"},
		{"data after the trailer", func(p *rawClient) {
			p.sendRequestHeader(1, "/hold")
			p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields("x", "x")))
			p.sendFrame(http2.FrameData, 0, 1, "x")
		}, "reset 1 STREAM_CLOSED"},
	}, func(p *rawClient) { p.sendPreface() })
}

// TestFramesAfterReset checks that frames which a client sends before it learns that the server has reset a stream are
// no error.
func TestFramesAfterReset(t *testing.T) {
	thenRequest := func(send func(*rawClient)) func(*rawClient) {
		return func(p *rawClient) { send(p); p.sendRequest(3, "/") }
	}
	runRawCases(t, []rawCase{
		{"data", thenRequest(func(p *rawClient) { p.sendFrame(http2.FrameData, 0, 1, "x") }), "answer 3 200|reset 1 STREAM_CLOSED"},
		{"a trailer", thenRequest(func(p *rawClient) { p.sendFrame(http2.FrameHeaders, 5, 1, string(p.encodeFields("x", "x"))) }),
			"answer 3 200|reset 1 STREAM_CLOSED"},
		{"a window", thenRequest(func(p *rawClient) { p.must(p.WriteWindowUpdate(1, 1)) }), "answer 3 200"},
		{"a reset", thenRequest(func(p *rawClient) { p.must(p.WriteRSTStream(1, http2.ErrCodeCancel)) }), "answer 3 200"},
	}, func(p *rawClient) {
		p.sendPreface()
		p.sendRequestHeader(1, "/bytes/5") // its body is not read
		p.expectEvent("answer 1 200")
		p.expectEvent("reset 1 NO_ERROR")
	})
}

// TestResponsesRespectWindows checks that a response is sent as the windows of its stream and of the connection allow.
func TestResponsesRespectWindows(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
	const size = 200_000
	p.sendRequest(1, "/bytes/"+strconv.Itoa(size))
	p.expectEvent("answer 1 200")
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(1, 10))
	p.readBody(1, 10)
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(1, size)) // now the connection is the limit
	p.readBody(1, h2wire.DefaultWindow)
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(0, 100))
	p.readBody(1, h2wire.DefaultWindow+100)
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(0, size))
	if !bytes.Equal(p.readBody(1, size), pattern(size)) {
		t.Error("the answer is another")
	}
	p.waitStreamEnd(1)
}

// waitStreamEnd waits until the stream of a response whose whole body was read has ended.
func (p *rawClient) waitStreamEnd(id uint32) {
	p.Helper()
	p.waitUntil("the stream has ended", func() bool { return p.withConn(func(c *conn) bool { return c.streams[id] == nil }) })
	p.expectAlive()
}

// withConn calls check with the only connection of the server, under its lock, and reports what check returns.
func (p *rawClient) withConn(check func(*conn) bool) bool {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	for c := range p.server.conns {
		c.mu.Lock()
		defer c.mu.Unlock()
		return check(c)
	}
	return false
}

// TestNegativeWindows checks that a client may reduce a window below zero, after which nothing is sent until it is above zero.
func TestNegativeWindows(t *testing.T) {
	t.Parallel()
	initial := func(n uint32) http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: n} }
	p := dialWithPreface(t, rawConfig(), basicHandler, initial(100))
	p.sendRequest(1, "/bytes/1000")
	p.expectEvent("answer 1 200")
	p.readBody(1, 100)
	p.must(p.WriteSettings(initial(50))) // -50
	p.must(p.WriteWindowUpdate(1, 50))   // 0
	p.expectNoMoreData(1)
	p.must(p.WriteWindowUpdate(1, 10))
	p.readBody(1, 110)
	p.expectNoMoreData(1)
	p.must(p.WriteSettings(initial(150)))
	p.readBody(1, 210)
	p.must(p.WriteSettings(initial(0))) // -150
	p.must(p.WriteSettings(initial(1000)))
	if !bytes.Equal(p.readBody(1, 1000), pattern(1000)) {
		t.Error("the answer is another")
	}
	p.waitStreamEnd(1)
}

// TestEndWithoutWindow checks that the end of a response needs no window, so it is sent even when that is below zero.
func TestEndWithoutWindow(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	p := dialWithPreface(t, rawConfig(), func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(pattern(100))
		_ = http.NewResponseController(w).Flush()
		<-release
	})
	p.sendRequest(1, "/")
	p.expectEvent("answer 1 200")
	p.readBody(1, 100)
	p.must(p.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	p.expectAlive() // so the settings have been read
	close(release)
	for {
		f, err := p.nextFrame()
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
	for _, maxFrame := range []int{h2wire.SmallestFrame, 20_000, 1 << 20} {
		t.Run(strconv.Itoa(maxFrame), func(t *testing.T) {
			t.Parallel()
			p := dialWithPreface(t, rawConfig(), func(w http.ResponseWriter, r *http.Request) {
				for i := range fields {
					w.Header().Set("X-"+strconv.Itoa(i), strings.Repeat("x", 10_000))
				}
				basicHandler(w, r)
			}, http2.Setting{ID: http2.SettingMaxFrameSize, Val: uint32(maxFrame)}, http2.Setting{ID: http2.SettingInitialWindowSize,
				Val: size})
			p.SetMaxReadFrameSize(uint32(maxFrame)) // reading a larger frame is an error
			p.ReadMetaHeaders = nil
			p.must(p.WriteWindowUpdate(0, size))
			p.sendRequest(1, "/bytes/"+strconv.Itoa(size))
			var block []byte
			continued := 0
			for whole := false; !whole; {
				f, err := p.nextFrame()
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
			if want := (len(block)+maxFrame-1)/maxFrame - 1; continued < want {
				t.Errorf("a block of %d bytes came with %d continuations, want %d", len(block), continued, want)
			}
			if !bytes.Equal(p.readBody(1, size), pattern(size)) {
				t.Error("the answer is another")
			}
		})
	}
}

// TestClientWithoutHPACKTable checks that a client that allows no dynamic HPACK table first gets a table size update, and only
// fields that can be decoded without such a table.
func TestClientWithoutHPACKTable(t *testing.T) {
	t.Parallel()
	p := dialWithPreface(t, rawConfig(), basicHandler, http2.Setting{ID: http2.SettingHeaderTableSize, Val: 0})
	p.ReadMetaHeaders = nil
	for id := uint32(1); id < 7; id += 2 {
		p.sendRequest(id, "/")
		for block := []byte(nil); block == nil; {
			f, err := p.nextFrame()
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
