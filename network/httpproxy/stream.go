package httpproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// maxHello bounds what a client may send before its server name is known.
const maxHello = 64 << 10

// ServeSections serves the clients of a port until ctx ends or the listener fails. With secure, the port is for TLS:
// the server name of a client decides whether it gets HTTP or a stream to a backend. The listener bounds the clients.
func (p *Proxy) ServeSections(ctx context.Context, l net.Listener, secure bool) error {
	server := p.Server()
	defer context.AfterFunc(ctx, func() {
		_ = l.Close()
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer stop()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})()
	if !secure {
		return ignoreStopped(ctx, server.Serve(l))
	}
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	inner := &connQueue{conns: make(chan net.Conn), closed: make(chan struct{}), address: l.Addr()}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { _ = server.Serve(inner) })
	defer func() { _ = inner.Close() }()
	for {
		c, err := l.Accept()
		if err != nil {
			if again, ok := errors.AsType[net.Error](err); ok && again.Timeout() {
				continue
			}
			return ignoreStopped(ctx, err)
		}
		wg.Go(func() { p.dispatch(ctx, c, inner) })
	}
}

// closeTimeout is how long requests may take that are in flight when a port is closed.
const closeTimeout = 2 * time.Second

// ignoreStopped returns nil for the error of a server that was stopped on purpose.
func ignoreStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// dispatch reads the server name of a new client, and passes the connection to HTTP or to a stream.
func (p *Proxy) dispatch(ctx context.Context, c net.Conn, http1and2 *connQueue) {
	_ = c.SetReadDeadline(time.Now().Add(headerTimeout))
	raw := c
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	name, ahead, err := readHello(ctx, c)
	stop()
	if err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	c = &replayedConn{Conn: c, ahead: ahead}
	list := p.sections.Load()
	var s *Section
	if list != nil {
		s = sectionOf(*list, name)
	}
	switch {
	case s == nil:
		_ = c.Close()
	case s.Stream:
		done := p.Drain.begin(nil)
		p.stream(ctx, c, s, name)
		done()
	case len(s.Certificates) == 0 || !http1and2.push(tls.Server(c, s.tls("h2", "http/1.1"))):
		_ = c.Close()
	}
}

// readHello reads the ClientHello of a TLS client. It returns the server name and all bytes that were read.
func readHello(ctx context.Context, c net.Conn) (name string, ahead []byte, err error) {
	spy := &recordingConn{Reader: io.LimitReader(c, maxHello)}
	known := false
	_ = tls.Server(spy, &tls.Config{MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name, known = tlsName(hello.ServerName), true
			return nil, errHelloRead
		}}).HandshakeContext(ctx)
	if !known {
		return "", nil, errors.New("not TLS")
	}
	return name, spy.recorded, nil
}

var errHelloRead = errors.New("the ClientHello is read")

// stream copies bytes between a client and an endpoint.
func (p *Proxy) stream(ctx context.Context, c net.Conn, s *Section, name string) {
	defer func() { _ = c.Close() }()
	route := s.Table.streamFor(name)
	if route == nil {
		return
	}
	to := route.choose(rand.Int()) //nolint:gosec // G404: it spreads load, and is no secret
	if to == nil || to.pool == nil {
		return
	}
	if len(s.Certificates) > 0 {
		secure := tls.Server(c, s.tls())
		ctx, stop := context.WithTimeout(ctx, headerTimeout)
		err := secure.HandshakeContext(ctx)
		stop()
		if err != nil {
			return
		}
		c = secure
	}
	client, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	e, out := to.pool.dial(ctx, client, p.Answered)
	if out == nil {
		return
	}
	defer e.release()
	defer func() { _ = out.Close() }()
	defer context.AfterFunc(ctx, func() { _, _ = c.Close(), out.Close() })()
	var wg sync.WaitGroup
	wg.Go(func() { pass(out, c) })
	pass(c, out)
	wg.Wait()
}

// streamFor returns the rule for a server name, or nil if there is none.
func (t *Table) streamFor(name string) *route {
	for _, h := range t.hostsFor(name, nil) {
		if len(h.root.routes) > 0 {
			return h.root.routes[0]
		}
	}
	return nil
}

// dial connects to an endpoint, which the caller must release. answered is Config.Answered.
func (p *Pool) dial(ctx context.Context, client string, answered func(netip.AddrPort, time.Time) bool) (*endpoint, net.Conn) {
	var tried [maxTries]*endpoint
	dialer := net.Dialer{Timeout: dialTimeout}
	for n := range maxTries {
		e := p.take(client, tried[:n])
		if e == nil {
			return nil, nil
		}
		tried[n] = e
		hasAnswered := e.watchAnswer(answered)
		c, err := dialer.DialContext(ctx, "tcp", e.addr)
		if err == nil {
			hasAnswered()
			return e, c
		}
		e.release()
		e.avoid()
	}
	return nil, nil
}

// pass copies bytes from one side to the other, and then closes that direction.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = to.Close()
		_ = from.Close()
	}
}

// recordingConn is a connection for reading only, which records what was read.
type recordingConn struct {
	io.Reader
	recorded []byte
}

func (l *recordingConn) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.recorded = append(l.recorded, p[:n]...)
	return n, err
}

func (l *recordingConn) Write(p []byte) (int, error)      { return len(p), nil }
func (l *recordingConn) Close() error                     { return nil }
func (l *recordingConn) SetDeadline(time.Time) error      { return nil }
func (l *recordingConn) SetReadDeadline(time.Time) error  { return nil }
func (l *recordingConn) SetWriteDeadline(time.Time) error { return nil }
func (l *recordingConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (l *recordingConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// replayedConn is a connection that first returns bytes that were read before.
type replayedConn struct {
	net.Conn
	ahead []byte
}

func (r *replayedConn) Read(p []byte) (int, error) {
	if len(r.ahead) > 0 {
		n := copy(p, r.ahead)
		r.ahead = r.ahead[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// NetConn returns the connection of the client.
func (r *replayedConn) NetConn() net.Conn { return r.Conn }

// CloseWrite closes the direction to the client.
func (r *replayedConn) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.New("the connection ends as a whole")
}

// connQueue is a listener whose connections come from another goroutine.
type connQueue struct {
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	address net.Addr
}

// push passes a connection to Accept. It returns false if the listener is closed.
func (h *connQueue) push(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

func (h *connQueue) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *connQueue) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *connQueue) Addr() net.Addr { return h.address }
