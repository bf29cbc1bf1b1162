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

	"proa.dev/kinds/lib/streamoptions"
)

// serve serves the requests of a server over a connection, until that or ctx ends.
func (t *Tunnels) serve(ctx context.Context, conn net.Conn) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l := &singleListener{Conn: conn, ended: make(chan struct{})}
	var work handlers
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true) // the connection is encrypted already
	server := &http.Server{
		Protocols: protocols, ReadHeaderTimeout: dialTimeout, MaxHeaderBytes: maxHead,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(t.Log.Handler(), slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if work.enter() {
				defer work.Done()
				t.answer(w, r)
			}
		}),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          streamoptions.TunnelStreams,
			MaxReceiveBufferPerStream:     streamoptions.TunnelBuffer,
			MaxReceiveBufferPerConnection: streamoptions.TunnelBuffer * streamoptions.TunnelStreams,
			SendPingTimeout:               15 * time.Second, PingTimeout: 10 * time.Second, WriteByteTimeout: 30 * time.Second,
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

// handlers counts the running handlers.
type handlers struct {
	sync.WaitGroup
	mu    sync.Mutex // guards ended
	ended bool
}

// enter counts one more, unless end was called.
func (h *handlers) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.ended {
		h.Add(1)
	}
	return !h.ended
}

// end waits for all of them, and prevents new ones.
func (h *handlers) end() {
	h.mu.Lock()
	h.ended = true
	h.mu.Unlock()
	h.Wait()
}

// singleListener is a listener with a single connection. It is closed with that.
type singleListener struct {
	net.Conn
	ended  chan struct{}
	taken  bool // used by Accept only
	closed sync.Once
}

// Accept returns the connection, and then waits for its end.
func (o *singleListener) Accept() (net.Conn, error) {
	if !o.taken {
		o.taken = true
		return o, nil
	}
	<-o.ended
	return nil, net.ErrClosed
}

// Close closes the connection and the listener.
func (o *singleListener) Close() error {
	o.closed.Do(func() { close(o.ended) })
	return o.Conn.Close()
}

// Addr returns the local address of the connection.
func (o *singleListener) Addr() net.Addr { return o.LocalAddr() }

// answer connects the server with an address of the node, if that is allowed.
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
	d := net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}
	conn, err := d.DialContext(r.Context(), "tcp", to.String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	w.WriteHeader(http.StatusOK)
	out := flushingWriter{w, http.NewResponseController(w)}
	if out.now.Flush() == nil {
		copyBoth(r.Context(), out, r.Body, conn.(*net.TCPConn), t.idle)
	}
	_ = conn.Close()
}

// allows reports whether an address is the node's own or that of one of its Pods. The machine's loopback address is
// neither, nor are other addresses that can be reached from here.
func (t *Tunnels) allows(to netip.AddrPort) bool {
	ip := to.Addr()
	if to.Port() == 0 || ip.Zone() != "" {
		return false
	}
	return slices.Contains(t.NodeIPs(), ip) || ip.IsGlobalUnicast() && t.IsPodIP(ip)
}

// copyBoth copies in both directions until the far end has sent everything, either end is closed, or the connection was
// idle for too long.
func copyBoth(ctx context.Context, out io.Writer, in io.Reader, far *net.TCPConn, idle time.Duration) {
	release := context.AfterFunc(ctx, func() { _ = far.Close() })
	defer release()
	silence := time.AfterFunc(idle, func() { _ = far.Close() })
	defer silence.Stop()
	heard := func() { silence.Reset(idle) }
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := io.Copy(far, notifyingReader{in, heard}); err != nil {
			_ = far.Close() // the server or the far end has disconnected
			return
		}
		_ = far.CloseWrite()
	})
	_, _ = io.Copy(out, notifyingReader{far, heard}) // either end may disconnect
	_ = far.Close()
	if c, ok := in.(io.Closer); ok {
		_ = c.Close()
	}
	wg.Wait()
}

// notifyingReader calls a function after each read.
type notifyingReader struct {
	io.Reader
	heard func()
}

// Read reads.
func (n notifyingReader) Read(b []byte) (int, error) {
	got, err := n.Reader.Read(b)
	n.heard()
	return got, err
}

// flushingWriter flushes after each write.
type flushingWriter struct {
	io.Writer
	now *http.ResponseController
}

// Write writes and flushes.
func (f flushingWriter) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil {
		err = f.now.Flush()
	}
	return n, err
}
