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

// bubbleClient is a client in a synctest bubble. A goroutine reads everything that the server sends, unless it is paused.
type bubbleClient struct {
	*testing.T
	*http2.Framer
	server  *connections
	socket  net.Conn
	ended   chan struct{}
	encoder *hpack.Encoder
	block   bytes.Buffer

	mu     sync.Mutex
	paused chan struct{} // while it is not nil, the client reads nothing until it is closed
	events []string
	bytes  map[uint32]int // of bodies
}

// inBubble runs a test in a synctest bubble, with a client that has sent its preface.
func inBubble(t *testing.T, cfg Config, h http.HandlerFunc, test func(*bubbleClient), settings ...http2.Setting) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newConnections(cfg)
		v := newBubbleClient(t, s, h)
		defer v.disconnect()
		if _, err := io.WriteString(v.socket, h2wire.Preface); err != nil {
			t.Fatal(err)
		}
		if err := v.WriteSettings(settings...); err != nil {
			t.Fatal(err)
		}
		test(v)
	})
}

// disconnect closes the connection and checks that the server counts no memory for it any more.
func (v *bubbleClient) disconnect() {
	v.resumeReading()
	_ = v.socket.Close()
	<-v.ended
	synctest.Wait()
	if n, m := v.server.unauthenticated.held.Load(), v.server.authenticated.held.Load(); n != 0 || m != 0 {
		v.Errorf("after all connections have ended, %d and %d bytes are counted", n, m)
	}
}

// newBubbleClient connects a client to a server and starts to read what the server sends.
func newBubbleClient(t *testing.T, s *connections, h http.HandlerFunc) *bubbleClient {
	near, far := net.Pipe()
	v := &bubbleClient{T: t, Framer: http2.NewFramer(near, near), server: s, socket: near, ended: make(chan struct{}),
		bytes: map[uint32]int{}}
	v.AllowIllegalWrites = true
	v.ReadMetaHeaders = hpack.NewDecoder(h2wire.DefaultTableSize, nil)
	v.encoder = hpack.NewEncoder(&v.block)
	go func() {
		defer close(v.ended)
		defer far.Close()
		s.serve(t.Context(), far, nil, h)
	}()
	go v.readFrames()
	return v
}

func (v *bubbleClient) readFrames() {
	for {
		v.mu.Lock()
		paused := v.paused
		v.mu.Unlock()
		if paused != nil {
			<-paused
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

// pauseReading makes the client stop reading after the frame that it is already waiting for.
func (v *bubbleClient) pauseReading() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.paused = make(chan struct{})
}

// resumeReading makes a paused client read again.
func (v *bubbleClient) resumeReading() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.paused != nil {
		close(v.paused)
		v.paused = nil
	}
}

// request sends a request, with the fields given besides the usual ones.
func (v *bubbleClient) request(id uint32, method string, end bool, more ...string) {
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

// eventsAfter lets time pass, and returns all events that the client has received so far.
func (v *bubbleClient) eventsAfter(d time.Duration) []string {
	time.Sleep(d)
	synctest.Wait()
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.events)
}

// expectEvents lets time pass, and compares the events that the client has received with want.
func (v *bubbleClient) expectEvents(d time.Duration, want ...string) {
	v.Helper()
	if got := v.eventsAfter(d); !slices.Equal(got, want) {
		v.Fatalf("after %v more the client has received %q, want %q", d, got, want)
	}
}

// conn returns the connection of the server, and fails when there is none.
func (v *bubbleClient) conn() *conn {
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
