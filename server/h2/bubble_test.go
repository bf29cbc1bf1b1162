package h2

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"proa.dev/server/h2/h2wire"
)

// visitor is a client in a synctest bubble. It reads everything that it is sent, unless it is deaf.
type visitor struct {
	*testing.T
	*http2.Framer
	server  *connections
	socket  net.Conn
	ended   chan struct{}
	encoder *hpack.Encoder
	block   bytes.Buffer

	mu     sync.Mutex
	deaf   chan struct{} // it does not read while this is open; nil when it does
	events []string
	bytes  map[uint32]int // of bodies
}

// inBubble runs a test with a client that has sent its preface.
func inBubble(t *testing.T, cfg Config, h http.HandlerFunc, test func(*visitor), settings ...http2.Setting) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newConnections(cfg)
		v := visit(t, s, h)
		defer v.leave()
		if _, err := io.WriteString(v.socket, h2wire.Preface); err != nil {
			t.Fatal(err)
		}
		if err := v.WriteSettings(settings...); err != nil {
			t.Fatal(err)
		}
		test(v)
	})
}

// leave closes the connection, after which the server must count no memory for it.
func (v *visitor) leave() {
	v.listen()
	_ = v.socket.Close()
	<-v.ended
	synctest.Wait()
	if n, m := v.server.unauthenticated.held.Load(), v.server.authenticated.held.Load(); n != 0 || m != 0 {
		v.Errorf("after all connections have ended, %d and %d bytes are counted", n, m)
	}
}

// visit connects a client to a server, and reads what it sends.
func visit(t *testing.T, s *connections, h http.HandlerFunc) *visitor {
	near, far := net.Pipe()
	v := &visitor{T: t, Framer: http2.NewFramer(near, near), server: s, socket: near, ended: make(chan struct{}), bytes: map[uint32]int{}}
	v.AllowIllegalWrites = true
	v.ReadMetaHeaders = hpack.NewDecoder(h2wire.DefaultTableSize, nil)
	v.encoder = hpack.NewEncoder(&v.block)
	go func() {
		defer close(v.ended)
		defer far.Close()
		s.serve(t.Context(), far, nil, h)
	}()
	go v.hear()
	return v
}

func (v *visitor) hear() {
	for {
		v.mu.Lock()
		deaf := v.deaf
		v.mu.Unlock()
		if deaf != nil {
			<-deaf
		}
		f, err := v.ReadFrame()
		v.mu.Lock()
		switch f := f.(type) {
		case *http2.GoAwayFrame:
			v.events = append(v.events, "goaway "+f.ErrCode.String())
		case *http2.RSTStreamFrame:
			v.events = append(v.events, fmt.Sprintf("reset %d %v", f.StreamID, f.ErrCode))
		case *http2.MetaHeadersFrame:
			v.events = append(v.events, fmt.Sprintf("answer %d %s", f.StreamID, f.PseudoValue("status")))
		case *http2.DataFrame:
			if v.bytes[f.StreamID] += len(f.Data()); f.StreamEnded() {
				v.events = append(v.events, fmt.Sprintf("end %d", f.StreamID))
			}
		}
		if err != nil {
			v.events = append(v.events, "over")
		}
		v.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// ignore makes the client stop reading, except for a frame that it waits for already.
func (v *visitor) ignore() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.deaf = make(chan struct{})
}

// listen makes it read again.
func (v *visitor) listen() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.deaf != nil {
		close(v.deaf)
		v.deaf = nil
	}
}

// request sends a request, with the fields given besides the usual ones.
func (v *visitor) request(id uint32, method string, end bool, more ...string) {
	v.Helper()
	pairs := append([]string{":method", method, ":scheme", "https", ":authority", "proa", ":path", "/"}, more...)
	v.block.Reset()
	for i := 0; i < len(pairs); i += 2 {
		if err := v.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}); err != nil {
			v.Fatal(err)
		}
	}
	if err := v.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: v.block.Bytes(), EndStream: end,
		EndHeaders: true}); err != nil {
		v.Fatal(err)
	}
}

// after lets time pass, and returns what the client has received so far.
func (v *visitor) after(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.events)
}

// wants compares what the client has received after some time.
func (v *visitor) wants(d time.Duration, want ...string) {
	v.Helper()
	if got := v.after(d); !slices.Equal(got, want) {
		v.Fatalf("after %v more the client has been told %q, want %q", d, got, want)
	}
}

// conn returns the one connection of the server.
func (v *visitor) conn() *conn {
	v.Helper()
	synctest.Wait()
	v.server.mu.Lock()
	defer v.server.mu.Unlock()
	for c := range v.server.conns {
		return c
	}
	v.Fatal("there is no connection")
	return nil
}
