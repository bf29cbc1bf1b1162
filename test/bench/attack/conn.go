package attack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Target is the server that is attacked, and the accounts there.
type Target struct {
	Address   string
	Authority *x509.CertPool
	// AttackerToken and ProbeToken are those of two service accounts without special rights.
	AttackerToken, ProbeToken string
	// Administrator is the certificate of the administrator, as whom the probe impersonates an ordinary user.
	Administrator tls.Certificate
}

// host is the name or address that the certificate of the server is for.
func (t *Target) host() string {
	host, _, _ := net.SplitHostPort(t.Address)
	return host
}

// attacker is one of the connections of an attack, with those that took its place after the server closed it.
type attacker struct {
	*Target
	units  int // what it is to send
	tally  *tally
	opened *links
}

// links are all connections of an attack, for the account at its end.
type links struct {
	mu  sync.Mutex
	all []*link
	end bool // the attack is over
}

// interrupt wakes whoever waits for one of the connections, because the attack is over. They stay open.
func (s *links) interrupt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = true
	for _, l := range s.all {
		_ = l.SetDeadline(time.Unix(1, 0))
	}
}

// link is a connection of any protocol.
type link struct {
	net.Conn
	closed atomic.Bool // by the server
	over   atomic.Bool // the attack is over, and what happens to the connection does not count any more
	unread bool        // nobody reads what the server sends
	reader sync.WaitGroup
}

// countedConn counts the bytes that are written.
type countedConn struct {
	net.Conn
	written *atomic.Int64
}

func (c countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n))
	return n, err
}

// dial opens a TCP connection.
func (a *attacker) dial(ctx context.Context) (*link, error) {
	socket, err := (&net.Dialer{}).DialContext(ctx, "tcp", a.Address)
	if err != nil {
		a.refused(ctx, reason(err))
		return nil, err
	}
	l := &link{Conn: countedConn{socket, &a.tally.bytes}}
	a.opened.mu.Lock()
	defer a.opened.mu.Unlock()
	if a.opened.end {
		_ = socket.Close()
		return nil, net.ErrClosed
	}
	a.opened.all = append(a.opened.all, l)
	return l, nil
}

// dialTLS opens a connection that speaks one of the protocols.
func (a *attacker) dialTLS(ctx context.Context, protocols ...string) (*link, error) {
	l, err := a.dial(ctx)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(l.Conn, &tls.Config{RootCAs: a.Authority, ServerName: a.host(), NextProtos: protocols})
	if err := secure.HandshakeContext(ctx); err != nil {
		if ctx.Err() == nil {
			l.failed(err)
		}
		a.refused(ctx, "TLS "+reason(err))
		return nil, err
	}
	l.Conn = secure
	return l, nil
}

// refused counts a connection that could not be opened before the attack was over.
func (a *attacker) refused(ctx context.Context, why string) {
	if ctx.Err() == nil {
		a.tally.count(a.tally.errors, why)
	}
}

// failed notes that the server has closed the connection, unless it was this side or its time.
func (l *link) failed(err error) {
	if err != nil && !l.over.Load() && !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrDeadlineExceeded) {
		l.closed.Store(true)
	}
}

// reason shortens an error to its last words.
func reason(err error) string {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return "timeout"
	}
	text := err.Error()
	if i := strings.LastIndex(text, ": "); i >= 0 {
		text = text[i+2:]
	}
	return text
}

// readAnswers reads a connection of HTTP/1 until it ends, and counts the answers.
func (l *link) readAnswers(t *tally) {
	l.reader.Go(func() {
		in := bufio.NewReader(l.Conn)
		for {
			line, err := in.ReadString('\n')
			if status, ok := strings.CutPrefix(line, "HTTP/1.1 "); ok && len(status) > 3 {
				t.count(t.answers, status[:3])
			}
			if err != nil {
				l.failed(err)
				return
			}
		}
	})
}

// finish closes all connections, and counts which of them the server had closed before.
func (s *links) finish(t *tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.all {
		l.over.Store(true)
		if l.unread {
			_ = l.SetDeadline(time.Now().Add(20 * time.Millisecond))
			_, err := io.Copy(io.Discard, l.Conn)
			l.closed.Store(err == nil || !errors.Is(err, os.ErrDeadlineExceeded))
		}
	}
	for _, l := range s.all {
		_ = l.Close()
	}
	for _, l := range s.all {
		l.reader.Wait()
		t.ended(l.closed.Load())
	}
}

// h2conn is a connection on which a client sends what it is told, right or wrong.
type h2conn struct {
	*link
	*http2.Framer
	tally *tally
	out   *bufio.Writer
	next  uint32 // the next stream

	mu     sync.Mutex
	change *sync.Cond // what follows has changed
	window int64      // what the server takes of all bodies together
	last   uint32     // the stream whose window and answer are waited for, one at a time
	room   int64      // what the server takes of its body
	done   bool       // it has been answered or reset
	first  int64      // what the server takes of a body at first, as its settings say
	pongs  int
	over   bool
}

// h2options say how a connection of HTTP/2 begins.
type h2options struct {
	settings []http2.Setting
	unread   bool // nobody reads what the server sends
}

// dialHTTP2 opens a connection and sends the preface, the settings, and a window for all answers that never gets full.
func (a *attacker) dialHTTP2(ctx context.Context, o h2options) (*h2conn, error) {
	l, err := a.dialTLS(ctx, "h2")
	if err != nil {
		return nil, err
	}
	c := &h2conn{link: l, tally: a.tally, out: bufio.NewWriterSize(l.Conn, 32<<10), next: 1, window: 65535, first: 65535}
	c.change = sync.NewCond(&c.mu)
	c.Framer = http2.NewFramer(c.out, bufio.NewReaderSize(l.Conn, 32<<10))
	c.AllowIllegalWrites = true
	if _, err := c.out.WriteString(http2.ClientPreface); err != nil {
		return nil, err
	}
	if err := errors.Join(c.WriteSettings(o.settings...), c.WriteWindowUpdate(0, 1<<30), c.out.Flush()); err != nil {
		l.failed(err)
		return nil, err
	}
	if l.unread = o.unread; !o.unread {
		c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		l.reader.Go(c.read)
	}
	return c, nil
}

// read counts what the server sends, until the connection ends.
func (c *h2conn) read() {
	defer c.update(func() { c.over = true })
	for {
		f, err := c.ReadFrame()
		if err != nil {
			if _, ok := errors.AsType[http2.StreamError](err); ok {
				continue
			}
			c.failed(err)
			return
		}
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			c.tally.count(c.tally.answers, f.PseudoValue("status"))
			c.update(func() { c.done = c.done || f.StreamID == c.last })
		case *http2.RSTStreamFrame:
			c.tally.count(c.tally.resets, f.ErrCode.String())
			c.update(func() { c.done = c.done || f.StreamID == c.last })
		case *http2.GoAwayFrame:
			c.tally.count(c.tally.goaways, f.ErrCode.String())
			c.update(func() { c.over = true })
		case *http2.WindowUpdateFrame:
			c.update(func() { c.grant(f.StreamID, int64(f.Increment)) })
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
				c.update(func() {
					c.room += int64(v) - c.first
					c.first = int64(v)
				})
			}
		case *http2.PingFrame:
			if f.IsAck() {
				c.update(func() { c.pongs++ })
			}
		}
	}
}

// grant adds what the server takes of a body, or of all. The lock is held.
func (c *h2conn) grant(stream uint32, more int64) {
	switch stream {
	case 0:
		c.window += more
	case c.last:
		c.room += more
	}
}

func (c *h2conn) update(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	c.change.Broadcast()
}

// errOver says that the server does not take more on this connection.
var errOver = errors.New("the server has ended the connection")

// reserve waits until the server takes n more bytes of bodies.
func (c *h2conn) reserve(n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.wait(func() bool { return c.window >= int64(n) }); err != nil {
		return err
	}
	c.window -= int64(n)
	return nil
}

// reserveStream waits until the server takes n more bytes of the body of the request that was sent last.
func (c *h2conn) reserveStream(stream uint32, n int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last != stream {
		c.last, c.room, c.done = stream, c.first, false
	}
	if err := c.wait(func() bool { return c.done || c.window >= int64(n) && c.room >= int64(n) }); err != nil {
		return err
	}
	c.window -= int64(n)
	c.room -= int64(n)
	return nil
}

// awaitAnswer waits until the request that was sent last has been answered or reset.
func (c *h2conn) awaitAnswer(stream uint32) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wait(func() bool { return c.last != stream || c.done })
}

// wait sends what is buffered and waits for a condition. The lock is held, but not all the time.
func (c *h2conn) wait(is func() bool) error {
	for !is() && !c.over {
		if err := c.flushUnlocked(); err != nil {
			return err
		}
		if !is() && !c.over {
			c.change.Wait()
		}
	}
	if c.over {
		return errOver
	}
	return nil
}

// flushUnlocked sends what is buffered without holding the lock, which the reader needs.
func (c *h2conn) flushUnlocked() error {
	if c.out.Buffered() == 0 {
		return nil
	}
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.flush()
}

func (c *h2conn) flush() error {
	err := c.out.Flush()
	c.failed(err)
	return err
}

// ended tells whether the server has said goodbye or closed the connection.
func (c *h2conn) ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// confirm asks for a last PING to be answered, which shows that the server has read all that was sent before.
func (c *h2conn) confirm() error {
	if c.unread {
		return c.flush()
	}
	c.mu.Lock()
	had := c.pongs
	c.mu.Unlock()
	if err := errors.Join(c.WritePing(false, [8]byte{1}), c.flush()); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.pongs == had && !c.over {
		c.change.Wait()
	}
	if c.pongs > had {
		c.tally.confirmed.Add(1)
	}
	return nil
}

// stream is the number of a new stream.
func (c *h2conn) stream() uint32 {
	c.next += 2
	return c.next - 2
}

// fieldBlock encodes a request in a way that leaves the table of the connection alone, so that it can be sent any number of times.
func fieldBlock(method, path string, more ...string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	fields := append([]string{":method", method, ":scheme", "https", ":authority", "localhost", ":path", path}, more...)
	for i := 0; i < len(fields); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true}) // into memory
	}
	return block.Bytes()
}

// headers sends a block of fields of any size on a new stream, cut into frames of the usual size.
func (c *h2conn) headers(block []byte, endStream bool) (uint32, error) {
	const size = 16 << 10
	id := c.stream()
	first := block[:min(size, len(block))]
	rest := block[len(first):]
	err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: first, EndStream: endStream, EndHeaders: len(rest) == 0})
	for len(rest) > 0 && err == nil {
		piece := rest[:min(size, len(rest))]
		rest = rest[len(piece):]
		err = c.WriteContinuation(id, len(rest) == 0, piece)
	}
	return id, err
}

// zeroWindow is the setting of a client that takes no byte of an answer.
func zeroWindow() http2.Setting { return http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0} }
