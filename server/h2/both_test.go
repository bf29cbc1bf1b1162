package h2

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"proa.dev/server/h2/h2wire"
)

// tlsClient is a client that sends single frames over TLS, to the server of this package or to the one of net/http. It sees
// only what the server sends.
type tlsClient struct {
	*testing.T
	*http2.Framer
	socket  *tls.Conn
	encoder *hpack.Encoder
	block   bytes.Buffer
}

// newTLSClient connects to a server.
func newTLSClient(s *testServer, config *tls.Config, settings ...http2.Setting) *tlsClient {
	s.Helper()
	config.InsecureSkipVerify, config.NextProtos = true, []string{"h2"}
	raw, err := (&net.Dialer{}).DialContext(s.Context(), "tcp", strings.TrimPrefix(s.base, "https://"))
	if err != nil {
		s.Fatal(err)
	}
	g := &tlsClient{T: s.T, socket: tls.Client(raw, config)}
	s.Cleanup(func() { _ = g.socket.Close() })
	g.Framer = http2.NewFramer(g.socket, g.socket)
	g.AllowIllegalWrites = true
	g.ReadMetaHeaders = hpack.NewDecoder(h2wire.DefaultTableSize, nil)
	g.encoder = hpack.NewEncoder(&g.block)
	_, _ = io.WriteString(g.socket, h2wire.Preface)
	_ = g.WriteSettings(settings...)
	return g
}

// encodeRequest encodes a request with further fields, in a way that can be sent repeatedly.
func (g *tlsClient) encodeRequest(method, path string, more ...string) []byte {
	g.block.Reset()
	pairs := append([]string{":method", method, ":scheme", "https", ":authority", "proa", ":path", path}, more...)
	for i := 0; i < len(pairs); i += 2 {
		_ = g.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1], Sensitive: true})
	}
	return bytes.Clone(g.block.Bytes())
}

// sendHeader sends a header in as many frames as it takes.
func (g *tlsClient) sendHeader(id uint32, end bool, b []byte) error {
	n := min(len(b), h2wire.SmallestFrame)
	err := g.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: b[:n], EndStream: end, EndHeaders: n == len(b)})
	for b = b[n:]; len(b) > 0 && err == nil; b = b[n:] {
		n = min(len(b), h2wire.SmallestFrame)
		err = g.WriteContinuation(id, n == len(b), b[:n])
	}
	return err
}

// nextEnd reads until a response, a stream or the connection has ended, and returns that as text.
func (g *tlsClient) nextEnd() string {
	for {
		_ = g.socket.SetReadDeadline(time.Now().Add(testTimeout))
		f, err := g.ReadFrame()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return "nothing"
		}
		if err != nil {
			return "closed"
		}
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			return "goaway " + f.ErrCode.String()
		case *http2.RSTStreamFrame:
			return "reset " + f.ErrCode.String()
		case *http2.MetaHeadersFrame:
			return "answer " + f.PseudoValue("status")
		case *http2.PingFrame:
			if f.IsAck() && f.Data == [8]byte{7} {
				return "alive"
			}
		}
	}
}

// flood calls send repeatedly while it reads everything, and returns how the connection ended, or that it still works.
func (g *tlsClient) flood(times int, send func(i int) error) string {
	ending := make(chan string, 1)
	go func() {
		for last := ""; ; {
			switch got := g.nextEnd(); {
			case got == "closed" || got == "nothing":
				ending <- last
				return
			case got == "alive":
				ending <- got
				return
			case strings.HasPrefix(got, "goaway"):
				last = got
			}
		}
	}()
	var err error
	for i := 0; i < times && err == nil; i++ {
		err = send(i)
	}
	if err == nil {
		_ = g.WritePing(false, [8]byte{7})
	}
	return <-ending
}

// abuse is what a client does against the protocol or in excess, and how each of the two servers ends it.
type abuse struct {
	name      string
	settings  []http2.Setting
	do        func(*tlsClient) string
	ours, std string // allowed results, separated by "|"; empty for a connection that was closed without GOAWAY
}

func abuses() []abuse {
	ask := func(g *tlsClient, id uint32, path string, more ...string) {
		_ = g.sendHeader(id, true, g.encodeRequest("GET", path, more...))
	}
	return []abuse{
		{"rapid reset", nil, func(g *tlsClient) string {
			b := g.encodeRequest("GET", "/hold")
			return g.flood(20_000, func(i int) error {
				return errors.Join(g.sendHeader(uint32(2*i+1), true, b), g.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel))
			})
		}, "goaway ENHANCE_YOUR_CALM", "alive|goaway ENHANCE_YOUR_CALM|"},
		{"ping flood", nil, func(g *tlsClient) string {
			return g.flood(20_000, func(int) error { return g.WritePing(false, [8]byte{}) })
		}, "goaway ENHANCE_YOUR_CALM", "alive|goaway ENHANCE_YOUR_CALM|"},
		{"settings flood", nil, func(g *tlsClient) string { return g.flood(20_000, func(int) error { return g.WriteSettings() }) },
			"goaway ENHANCE_YOUR_CALM", "alive|goaway ENHANCE_YOUR_CALM|"},
		{"settings of 2000 entries", nil, func(g *tlsClient) string {
			_ = g.WriteSettings(slices.Repeat([]http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 1}}, 2000)...)
			_ = g.WritePing(false, [8]byte{7})
			return g.nextEnd()
		}, "goaway ENHANCE_YOUR_CALM", "goaway PROTOCOL_ERROR"},
		{"continuation flood", nil, func(g *tlsClient) string {
			_ = g.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: g.encodeRequest("GET", "/")})
			return g.flood(100_000, func(int) error { return g.WriteContinuation(1, false, nil) })
		}, "goaway ENHANCE_YOUR_CALM", "goaway PROTOCOL_ERROR"},
		{"a header of 2 MiB", nil, func(g *tlsClient) string { ask(g, 1, "/", "x", strings.Repeat("x", 2<<20)); return g.nextEnd() },
			"goaway ENHANCE_YOUR_CALM", "goaway COMPRESSION_ERROR"},
		{"fields of 1.1 MiB", nil, func(g *tlsClient) string {
			ask(g, 1, "/", slices.Repeat([]string{"x", strings.Repeat("x", 100_000)}, 11)...)
			return g.nextEnd()
		},
			"answer 431", "answer 431"},
		{"1000 pieces of cookies", nil, func(g *tlsClient) string {
			ask(g, 1, "/", slices.Repeat([]string{"cookie", "a=b"}, 1000)...)
			return g.nextEnd()
		},
			"answer 431", "answer 200"},
		{"10000 announced trailers", nil, func(g *tlsClient) string {
			names := ""
			for i := range 10_000 {
				names += fmt.Sprintf(",x%d", i)
			}
			ask(g, 1, "/", "trailer", names)
			return g.nextEnd()
		}, "reset PROTOCOL_ERROR", "answer 200"},
		{"host and authority differ", nil, func(g *tlsClient) string { ask(g, 1, "/", "host", "other"); return g.nextEnd() },
			"reset PROTOCOL_ERROR", "answer 200"},
		{"a path that is a URL", nil, func(g *tlsClient) string { ask(g, 1, "https://other/"); return g.nextEnd() }, "reset PROTOCOL_ERROR",
			"answer 200"},
		{"connection fields", nil, func(g *tlsClient) string { ask(g, 1, "/", "connection", "close"); return g.nextEnd() },
			"reset PROTOCOL_ERROR",
			"answer 400"},
		{"a line break in a value", nil, func(g *tlsClient) string { ask(g, 1, "/", "x", "a\r\nb: c"); return g.nextEnd() },
			"reset PROTOCOL_ERROR", "reset PROTOCOL_ERROR"},
		{"a name in upper case", nil, func(g *tlsClient) string { ask(g, 1, "/", "Host", "x"); return g.nextEnd() }, "reset PROTOCOL_ERROR",
			"reset PROTOCOL_ERROR"},
		{"a window overflows", nil, func(g *tlsClient) string { _ = g.WriteWindowUpdate(0, 1<<31-1); return g.nextEnd() },
			"goaway FLOW_CONTROL_ERROR", "goaway FLOW_CONTROL_ERROR"},
		{"a body too short", nil, func(g *tlsClient) string {
			_ = g.sendHeader(1, false, g.encodeRequest("POST", "/read", "content-length", "10"))
			_ = g.WriteData(1, true, []byte("short"))
			return g.nextEnd()
		}, "reset PROTOCOL_ERROR", "answer 200"}, // the handler got a read error, and wrote nothing
		{"a response with Connection: close", nil, func(g *tlsClient) string {
			ask(g, 1, "/leave")
			return g.nextEnd() + ", " + g.nextEnd()
		}, "answer 200, goaway NO_ERROR", "goaway NO_ERROR, answer 200"},
		{"a response shorter than its Content-Length", nil, func(g *tlsClient) string { ask(g, 1, "/short"); return g.nextEnd() },
			"reset INTERNAL_ERROR",
			"answer 200"},
		{"a deadline for an answer", []http2.Setting{{ID: http2.SettingInitialWindowSize, Val: 0}}, func(g *tlsClient) string {
			ask(g, 1, "/deadline")
			return g.nextEnd() + ", " + g.nextEnd()
		}, "answer 200, reset INTERNAL_ERROR", "answer 200, reset INTERNAL_ERROR"},
	}
}

// abuseHandler is the handler of abuses. It reports with which error reading the body ended.
func abuseHandler(running *atomic.Int64, read chan<- error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		running.Add(1)
		defer running.Add(-1)
		switch r.URL.Path {
		case "/hold":
			<-r.Context().Done()
		case "/read":
			_, err := io.ReadAll(r.Body)
			read <- err
		case "/leave":
			w.Header().Set("Connection", "close")
		case "/short":
			w.Header().Set("Content-Length", "10")
			_, _ = io.WriteString(w, "short")
		case "/deadline":
			_ = http.NewResponseController(w).Flush() // the response begins before the deadline, however busy the machine is
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			_, err := w.Write(make([]byte, 1<<20))
			read <- err
		}
	}
}

// TestAbuses does the same to both servers. Where the results differ, the row says so, and this server is the stricter
// one.
func TestAbuses(t *testing.T) {
	t.Parallel()
	for _, a := range abuses() {
		for name, attach := range implementations() {
			t.Run(a.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				var running atomic.Int64
				read := make(chan error, 10)
				s := newTestServer(t, attach, abuseHandler(&running, read))
				want := a.std
				if name == "ours" {
					want = a.ours
				}
				g := newTLSClient(s, &tls.Config{}, a.settings...)
				if got := a.do(g); !slices.Contains(strings.Split(want, "|"), got) {
					t.Errorf("the client sees %q, want %q", got, want)
				}
				_ = g.socket.Close()
				if got := describeResponse(s.get(t.Context(), "/"), nil); !strings.Contains(got, "200 OK") {
					t.Errorf("others see %q", got)
				}
				for end := time.Now().Add(testTimeout); running.Load() > 0; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%d handlers still run", running.Load())
					}
				}
				select {
				case err := <-read:
					if err == nil {
						t.Error("a handler got no error")
					}
				default:
				}
			})
		}
	}
}

// TestWeakCipherSuites checks that neither server uses HTTP/2 over a suite that RFC 9113 forbids, though the listener
// would.
func TestWeakCipherSuites(t *testing.T) {
	t.Parallel()
	for name, attach := range implementations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestServer(t, attach, http.HandlerFunc(basicHandler))
			g := newTLSClient(s, &tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA}})
			_ = g.sendHeader(1, true, g.encodeRequest("GET", "/"))
			if got := g.nextEnd(); got != "goaway INADEQUATE_SECURITY" {
				t.Errorf("the client sees %q", got)
			}
			g = newTLSClient(s, &tls.Config{MaxVersion: tls.VersionTLS12})
			_ = g.sendHeader(1, true, g.encodeRequest("GET", "/"))
			if got := g.nextEnd(); got != "answer 200" {
				t.Errorf("with a good suite the client sees %q", got)
			}
		})
	}
}

// TestZeroWindowsOccupyNoHandler checks that small responses which clients do not read occupy no handler, with either
// server.
func TestZeroWindowsOccupyNoHandler(t *testing.T) {
	t.Parallel()
	for name, attach := range implementations() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var running, served atomic.Int64
			s := newTestServer(t, attach, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				running.Add(1)
				defer running.Add(-1)
				defer served.Add(1)
				w.Header().Set("Content-Type", "application/json")
				w.Header().Set("Content-Length", "300")
				_, _ = w.Write(make([]byte, 300))
			}))
			g := newTLSClient(s, &tls.Config{}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			b := g.encodeRequest("GET", "/")
			for i := range uint32(200) {
				_ = g.sendHeader(2*i+1, true, b)
			}
			for end := time.Now().Add(testTimeout); served.Load() < 200 || running.Load() > 0; time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d handlers run, %d have returned", running.Load(), served.Load())
				}
			}
		})
	}
}

// TestMemoryOfUnauthenticatedClients compares the memory that unauthenticated clients make either server hold: this one holds less,
// and not more than the budgets of its connections.
func TestMemoryOfUnauthenticatedClients(t *testing.T) { // not parallel, because it measures memory
	const conns = 3
	for _, row := range []struct {
		name    string
		maximum uint64 // bytes that the server of this package may hold
		do      func(*tlsClient)
	}{
		{"headers", conns * 4 << 20, func(g *tlsClient) {
			pairs := []string{}
			for i := range 50 {
				pairs = append(pairs, fmt.Sprint("x-", i), strings.Repeat("x", 10_000))
			}
			b := g.encodeRequest("GET", "/hold", pairs...)
			for i := range uint32(30) {
				_ = g.sendHeader(2*i+1, true, b)
			}
		}},
		{"bodies", conns * 1 << 20, func(g *tlsClient) {
			b := g.encodeRequest("POST", "/hold", "content-length", "60000")
			for i := range uint32(3) { // about as much as the default window allows
				_ = g.sendHeader(2*i+1, false, b)
				for range 3 {
					_ = g.WriteData(2*i+1, false, make([]byte, 7_000))
				}
			}
		}},
		{"a long value that was cut, after its answer", conns * 512 << 10, func(g *tlsClient) {
			_ = g.sendHeader(1, true, g.encodeRequest("GET", "/", "x", strings.Repeat("x", 1_000_000)))
		}},
	} {
		held := map[string]uint64{}
		for _, name := range []string{"ours", "net/http"} {
			var running atomic.Int64
			s := newTestServer(t, implementations()[name], abuseHandler(&running, nil))
			before := heapInUse()
			guests := []*tlsClient{}
			for range conns {
				g := newTLSClient(s, &tls.Config{})
				row.do(g)
				g.block, g.encoder = bytes.Buffer{}, nil // the memory of the client must not be counted
				_ = g.WritePing(false, [8]byte{7})
				for got := ""; got != "alive" && got != "closed" && got != "nothing"; got = g.nextEnd() {
				}
				guests = append(guests, g)
			}
			now := heapInUse()
			held[name] = max(now, before) - before
			for _, g := range guests {
				_ = g.socket.Close()
			}
			_ = s.server.Close()
		}
		t.Logf("%s: %d KiB with ours, %d KiB with net/http", row.name, held["ours"]>>10, held["net/http"]>>10)
		if held["ours"] > row.maximum {
			t.Errorf("%s: unauthenticated clients hold %d bytes, more than %d", row.name, held["ours"], row.maximum)
		}
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
