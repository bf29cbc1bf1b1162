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
const testTimeout = time.Minute

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

// expectAlive checks with a PING that the connection still works. Before the response it skips resets, and events that begin
// with one of the expected texts.
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
