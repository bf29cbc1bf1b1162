package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"proa.dev/kinds/stream"
)

// serve answers what a server asks over a connection, until that ends or ctx does. Then nothing of it is left.
func (t *Tunnels) serve(ctx context.Context, conn net.Conn) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l := &only{Conn: conn, ended: make(chan struct{})}
	var work handlers
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // it is encrypted already
	server := &http.Server{
		Protocols: protocols, ReadHeaderTimeout: patience, MaxHeaderBytes: maxHead,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(t.Log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if work.enter() {
				defer work.Done()
				t.answer(w, r)
			}
		}),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:      stream.TunnelStreams,
			MaxReceiveBufferPerStream: stream.TunnelBuffer, MaxReceiveBufferPerConnection: stream.TunnelBuffer * stream.TunnelStreams,
			SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second, WriteByteTimeout: 30 * time.Second,
		},
	}
	release := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer release()
	err := server.Serve(l)
	_ = server.Close()
	_ = l.Close()
	stop()
	work.end()
	if errors.Is(err, net.ErrClosed) {
		return io.EOF
	}
	return err
}

// handlers are those that run.
type handlers struct {
	sync.WaitGroup
	mu    sync.Mutex // guards ended
	ended bool
}

// enter counts one more, unless it comes too late.
func (h *handlers) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.Add(1)
	}
	return !h.ended
}

// end waits for all of them, and lets no more begin.
func (h *handlers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.Wait()
}

// only is a listener at which one connection arrives. It ends with that.
type only struct {
	net.Conn
	ended  chan struct{}
	taken  bool // Accept alone uses it
	closed sync.Once
}

// Accept hands the connection out, and then waits for its end.
func (o *only) Accept() (net.Conn, error) {
	if !o.taken {
		o.taken = true
		return o, nil
	}
	<-o.ended
	return nil, net.ErrClosed
}

// Close ends the connection, and the listener with it.
func (o *only) Close() error {
	o.closed.Do(func() { close(o.ended) })
	return o.Conn.Close()
}

// Addr is where the connection begins.
func (o *only) Addr() net.Addr { return o.LocalAddr() }

// answer connects the server with an address of the node, if it may have that.
func (t *Tunnels) answer(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "a tunnel leads to addresses, and knows only CONNECT", http.StatusMethodNotAllowed)
		return
	}
	to, err := netip.ParseAddrPort(r.Host)
	if err != nil {
		http.Error(w, fmt.Sprintf("%.100q is not an address and a port", r.Host), http.StatusBadRequest)
		return
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if !t.allows(to) {
		http.Error(w, fmt.Sprintf("%s is neither the node's nor that of one of its Pods", to.Addr()), http.StatusForbidden)
		return
	}
	d := net.Dialer{Timeout: patience, KeepAlive: 30 * time.Second}
	conn, err := d.DialContext(r.Context(), "tcp", to.String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
	out := flushed{w, http.NewResponseController(w)}
	if out.now.Flush() == nil {
		pass(r.Context(), out, r.Body, conn.(*net.TCPConn), t.idle)
	}
	_ = conn.Close()
}

// allows says that an address is the node's own or that of one of its Pods. The machine's loopback is neither, nor is what else
// can be reached from here.
func (t *Tunnels) allows(to netip.AddrPort) bool {
	ip := to.Addr()
	if to.Port() == 0 || ip.Zone() != "" {
		return false
	}
	return slices.Contains(t.Own(), ip) || ip.IsGlobalUnicast() && t.Pod(ip)
}

// pass copies in both directions until the far end has said all, either end is gone, or nothing was said for too long.
func pass(ctx context.Context, out io.Writer, in io.Reader, far *net.TCPConn, idle time.Duration) {
	release := context.AfterFunc(ctx, func() { _ = far.Close() })
	defer release()
	silence := time.AfterFunc(idle, func() { _ = far.Close() })
	defer silence.Stop()
	heard := func() { silence.Reset(idle) }
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(far, noted{in, heard}); err != nil {
			_ = far.Close() // the server is gone, or the far end is
			return
		}
		_ = far.CloseWrite()
	})
	_, _ = io.Copy(out, noted{far, heard}) // either end may leave
	_ = far.Close()
	if c, ok := in.(io.Closer); ok {
		_ = c.Close()
	}
	wg.Wait()
}

// noted says that something was read.
type noted struct {
	io.Reader
	heard func()
}

// Read reads.
func (n noted) Read(b []byte) (int, error) {
	got, err := n.Reader.Read(b)
	n.heard()
	return got, err
}

// flushed sends everything as soon as it is written.
type flushed struct {
	io.Writer
	now *http.ResponseController
}

// Write writes and sends.
func (f flushed) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil {
		err = f.now.Flush()
	}
	return n, err
}
