package nodeconnection

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// tunnelConn is a connection through a tunnel: what is written becomes the body of a request, what is read is the body
// of the response.
type tunnelConn struct {
	in  *io.PipeWriter
	out io.ReadCloser
	end context.CancelFunc
	to  string

	mu sync.Mutex // guards what follows
	// read and write are the timers of the deadlines; nil for none. late says that the write deadline has passed,
	// writing that a Write is in progress.
	read, write   *time.Timer
	late, writing bool
	closed        bool
}

// Read reads from the other end.
func (p *tunnelConn) Read(b []byte) (int, error) { return p.out.Read(b) }

// Write returns when the tunnel has accepted all bytes.
func (p *tunnelConn) Write(b []byte) (int, error) {
	p.mu.Lock()
	if p.late {
		p.mu.Unlock()
		return 0, os.ErrDeadlineExceeded
	}
	p.writing = true
	p.mu.Unlock()
	n, err := p.in.Write(b)
	p.mu.Lock()
	p.writing = false
	p.mu.Unlock()
	return n, err
}

// CloseWrite signals the end of the stream to the other end.
func (p *tunnelConn) CloseWrite() error { return p.in.Close() }

// Close closes both directions.
func (p *tunnelConn) Close() error {
	p.mu.Lock()
	for _, t := range []*time.Timer{p.read, p.write} {
		if t != nil {
			t.Stop()
		}
	}
	p.read, p.write, p.closed = nil, nil, true
	p.mu.Unlock()
	p.end()
	_ = p.in.CloseWithError(net.ErrClosed)
	return p.out.Close()
}

// SetDeadline sets both deadlines.
func (p *tunnelConn) SetDeadline(t time.Time) error {
	_ = p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

// SetReadDeadline closes the connection at that time: reading cannot be interrupted and resumed.
func (p *tunnelConn) SetReadDeadline(t time.Time) error {
	return p.setTimer(&p.read, t, func() { _ = p.Close() })
}

// SetWriteDeadline makes writes fail after that time. A write that is in progress then cannot be undone, and the
// connection is closed.
func (p *tunnelConn) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	p.late = false
	p.mu.Unlock()
	return p.setTimer(&p.write, t, func() {
		p.mu.Lock()
		p.late = true
		stuck := p.writing
		p.mu.Unlock()
		if stuck {
			_ = p.Close()
		}
	})
}

// setTimer sets a timer instead of the one before; the zero time means never.
func (p *tunnelConn) setTimer(timer **time.Timer, t time.Time, then func()) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return net.ErrClosed
	}
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
	left := time.Until(t)
	if !t.IsZero() && left > 0 {
		*timer = time.AfterFunc(left, then)
	}
	p.mu.Unlock()
	if !t.IsZero() && left <= 0 {
		then()
	}
	return nil
}

// LocalAddr returns a placeholder.
func (p *tunnelConn) LocalAddr() net.Addr { return tunnelAddr("server") }

// RemoteAddr returns the address that the node has connected to.
func (p *tunnelConn) RemoteAddr() net.Addr { return tunnelAddr(p.to) }

// tunnelAddr is an address at the end of a tunnel.
type tunnelAddr string

// Network returns the name of this kind of network.
func (tunnelAddr) Network() string { return "tunnel" }

func (a tunnelAddr) String() string { return string(a) }
