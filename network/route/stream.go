package route

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// maxHello bounds what a client may send until it has said which name it wants.
const maxHello = 64 << 10

// ServeSections serves the clients of a port until ctx ends or the listener fails. With secure, the port is one for TLS: the name that a
// client asks for decides whether it gets HTTP, or a stream to a backend. At most limit clients are served at a time.
func (p *Proxy) ServeSections(ctx context.Context, l net.Listener, secure bool, limit int) error {
	l = netutil.LimitListener(l, limit)
	server := p.Server()
	defer context.AfterFunc(ctx, func() {
		_ = l.Close()
		ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), closing)
		defer stop()
		if server.Shutdown(ctx) != nil {
			_ = server.Close()
		}
	})()
	if !secure {
		return withoutEnd(ctx, server.Serve(l))
	}
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}
	inner := &handed{conns: make(chan net.Conn), closed: make(chan struct{}), address: l.Addr()}
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
			return withoutEnd(ctx, err)
		}
		wg.Go(func() { p.lead(ctx, c, inner) })
	}
}

// closing is how long requests may take that are there when a port is closed.
const closing = 2 * time.Second

// withoutEnd drops the error of what was ended on purpose.
func withoutEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// lead finds out what a new client wants, and leads it there.
func (p *Proxy) lead(ctx context.Context, c net.Conn, http1and2 *handed) {
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
	c = &replayed{Conn: c, ahead: ahead}
	list := p.sections.Load()
	var s *Section
	if list != nil {
		s = sectionOf(*list, name)
	}
	switch {
	case s == nil:
		_ = c.Close()
	case s.Stream:
		p.stream(ctx, c, s, name)
	case len(s.Certificates) == 0 || !http1and2.give(tls.Server(c, s.tls("h2", "http/1.1"))):
		_ = c.Close()
	}
}

// readHello reads the first message of a client that speaks TLS. It returns the name that the client asks for, and all bytes that were read.
func readHello(ctx context.Context, c net.Conn) (name string, ahead []byte, err error) {
	spy := &listening{Reader: io.LimitReader(c, maxHello)}
	known := false
	_ = tls.Server(spy, &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		name, known = tlsName(hello.ServerName), true
		return nil, errHeard
	}}).HandshakeContext(ctx)
	if !known {
		return "", nil, errors.New("not TLS")
	}
	return name, spy.heard, nil
}

var errHeard = errors.New("heard enough")

// stream passes bytes on between a client and an endpoint.
func (p *Proxy) stream(ctx context.Context, c net.Conn, s *Section, name string) {
	defer func() { _ = c.Close() }()
	way := s.Table.streamFor(name)
	if way == nil {
		return
	}
	to := way.choose(rand.Int()) //nolint:gosec // G404: who can guess it gains nothing
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
	e, out := to.pool.dial(ctx, client)
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

// streamFor returns the rule for a name; nil if there is none.
func (t *Table) streamFor(name string) *way {
	for _, h := range t.hostsFor(name, nil) {
		if len(h.root.ways) > 0 {
			return h.root.ways[0]
		}
	}
	return nil
}

// dial connects to an endpoint, which the caller must release.
func (p *Pool) dial(ctx context.Context, client string) (*endpoint, net.Conn) {
	var tried [maxTries]*endpoint
	dialer := net.Dialer{Timeout: dialTimeout}
	for n := range maxTries {
		e := p.take(client, tried[:n])
		if e == nil {
			return nil, nil
		}
		tried[n] = e
		c, err := dialer.DialContext(ctx, "tcp", e.addr)
		if err == nil {
			return e, c
		}
		e.release()
		e.rest()
	}
	return nil, nil
}

// pass copies what one side sends to the other, and tells it when that is over.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	half, ok := to.(interface{ CloseWrite() error })
	if err != nil || !ok || half.CloseWrite() != nil {
		_ = to.Close()
		_ = from.Close()
	}
}

// listening is a connection from which is only read, and remembers what.
type listening struct {
	io.Reader
	heard []byte
}

func (l *listening) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	l.heard = append(l.heard, p[:n]...)
	return n, err
}

func (l *listening) Write(p []byte) (int, error)      { return len(p), nil }
func (l *listening) Close() error                     { return nil }
func (l *listening) SetDeadline(time.Time) error      { return nil }
func (l *listening) SetReadDeadline(time.Time) error  { return nil }
func (l *listening) SetWriteDeadline(time.Time) error { return nil }
func (l *listening) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (l *listening) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// replayed is a connection of which something has been read already.
type replayed struct {
	net.Conn
	ahead []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.ahead) > 0 {
		n := copy(p, r.ahead)
		r.ahead = r.ahead[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// CloseWrite ends the direction to the client.
func (r *replayed) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.New("the connection ends as a whole")
}

// handed is a listener that is given its connections.
type handed struct {
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	address net.Addr
}

// give hands a connection over; false says that nobody takes it any more.
func (h *handed) give(c net.Conn) bool {
	select {
	case h.conns <- c:
		return true
	case <-h.closed:
		return false
	}
}

func (h *handed) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.closed:
		return nil, net.ErrClosed
	}
}

func (h *handed) Close() error {
	h.once.Do(func() { close(h.closed) })
	return nil
}

func (h *handed) Addr() net.Addr { return h.address }
