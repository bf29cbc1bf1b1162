package h2

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// tcpPair returns both ends of a TCP connection over the loopback interface.
func tcpPair(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return a.(*net.TCPConn), b.(*net.TCPConn)
}

func TestSendBufferFull(t *testing.T) {
	t.Parallel()
	near, far := tcpPair(t)
	if SendBufferFull(near) {
		t.Error("the buffer of a new connection is full")
	}
	sent := int64(0)
	// On a busy machine the short deadline may pass before the buffer is full.
	for end := time.Now().Add(testTimeout); !SendBufferFull(near); {
		_ = near.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := io.Copy(near, endless{})
		if sent += n; !errors.Is(err, os.ErrDeadlineExceeded) || time.Now().After(end) {
			t.Fatalf("after %d bytes that are not read (%v), the buffer is not full", sent, err)
		}
	}
	if _, err := io.CopyN(io.Discard, far, sent); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(testTimeout); SendBufferFull(near); time.Sleep(time.Millisecond) { // until the kernel has acknowledged it
		if time.Now().After(end) {
			t.Fatal("the buffer is still full after the peer has read it")
		}
	}
	pipe, _ := net.Pipe()
	if !SendBufferFull(pipe) {
		t.Error("a connection without a socket does not count as full")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestStalledByClient checks every way in which a client does not read a response.
func TestStalledByClient(t *testing.T) {
	t.Parallel()
	for name, way := range stalls {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, writer := make(chan error, 1), make(chan http.ResponseWriter, 1)
			inBubble(t, bubbleConfig(), func(w http.ResponseWriter, r *http.Request) {
				w.(interface{ Authenticated() }).Authenticated()
				writer <- w
				fixedSizeHandler(1<<20, got)(w, r)
			}, func(v *bubbleClient) {
				way.begin(v)
				v.request(1, "GET", true)
				v.eventsAfter(2500 * time.Millisecond)
				if w := <-writer; !w.(*response).StalledByClient() {
					t.Error("StalledByClient is false")
				}
				v.eventsAfter(2 * stallTimeout)
				if err := <-got; !errors.Is(err, os.ErrDeadlineExceeded) {
					t.Errorf("the handler got the error %v", err)
				}
			}, way.settings...)
		})
	}
}

// withBuffer is a connection that reports the state of another connection's send buffer.
type withBuffer struct {
	net.Conn
	other syscall.Conn
}

func (w withBuffer) SyscallConn() (syscall.RawConn, error) { return w.other.SyscallConn() }

// TestStalledByServer checks that a response does not count as waiting for its client while the goroutine that writes
// to the socket is not scheduled: neither when the output buffer is full, nor when the client cannot enlarge the window
// because the data of the window has not been sent to it yet.
func TestStalledByServer(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]uint32{"no room": 1 << 30, "no window": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			empty, _ := tcpPair(t)
			got, writer := make(chan error, 1), make(chan http.ResponseWriter, 1)
			inBubble(t, bubbleConfig(), func(w http.ResponseWriter, r *http.Request) {
				writer <- w
				fixedSizeHandler(1<<20, got)(w, r)
			}, func(v *bubbleClient) {
				if err := v.WriteWindowUpdate(0, 1<<30); err != nil {
					t.Fatal(err)
				}
				c := v.conn()
				c.mu.Lock()
				c.authenticate()
				pipe := c.socket
				c.socket = withBuffer{pipe, empty}
				c.out.writing = true // a goroutine is about to write
				c.mu.Unlock()
				v.request(1, "GET", true)
				v.eventsAfter(time.Minute)
				w := (<-writer).(*response)
				if len(got) != 0 || w.StalledByClient() {
					t.Errorf("%d handlers have returned, and the answer waits for the client: %v", len(got), w.StalledByClient())
				}
				c.mu.Lock()
				c.out.writing = false
				c.writePending()
				c.mu.Unlock()
				v.eventsAfter(time.Millisecond)
				if want := window < 1<<20; w.StalledByClient() != want {
					t.Errorf("after all was sent, the answer waits for the client: %v", !want)
				}
				if err := v.WriteWindowUpdate(1, 1<<20); err != nil {
					t.Fatal(err)
				}
				if v.eventsAfter(time.Millisecond); v.bytes[1] != 1<<20 {
					t.Errorf("the client has got %d bytes", v.bytes[1])
				}
				if err := <-got; err != nil {
					t.Error(err)
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				c.socket = pipe
				if c.out.sent != c.out.dequeued || c.out.sent < c.out.dataEnd {
					t.Errorf("%d bytes of %d were sent, and data up to %d", c.out.sent, c.out.dequeued, c.out.dataEnd)
				}
			}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
		})
	}
}
