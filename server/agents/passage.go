package agents

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// passage is a connection through a tunnel: what is written becomes the body of a request, what is read is that of its answer.
type passage struct {
	in  *io.PipeWriter
	out io.ReadCloser
	end context.CancelFunc
	to  string

	mu sync.Mutex // guards what follows
	// read and write are the deadlines; nil for none. Late says that the one of writing has passed, writing that somebody writes.
	read, write   *time.Timer
	late, writing bool
	closed        bool
}

// Read reads what came from the other end.
func (p *passage) Read(b []byte) (int, error) { return p.out.Read(b) }

// Write returns when the tunnel has taken all of it.
func (p *passage) Write(b []byte) (int, error) {
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

// CloseWrite tells the other end that nothing more comes.
func (p *passage) CloseWrite() error { return p.in.Close() }

// Close ends both directions.
func (p *passage) Close() error {
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
func (p *passage) SetDeadline(t time.Time) error {
	_ = p.SetReadDeadline(t)
	return p.SetWriteDeadline(t)
}

// SetReadDeadline ends the connection at a time: there is no way to stop reading and begin again.
func (p *passage) SetReadDeadline(t time.Time) error {
	return p.set(&p.read, t, func() { _ = p.Close() })
}

// SetWriteDeadline refuses what is written after a time. What is being written then cannot be taken back, and ends the connection.
func (p *passage) SetWriteDeadline(t time.Time) error {
	p.mu.Lock()
	p.late = false
	p.mu.Unlock()
	return p.set(&p.write, t, func() {
		p.mu.Lock()
		p.late = true
		stuck := p.writing
		p.mu.Unlock()
		if stuck {
			_ = p.Close()
		}
	})
}

// set lets something happen at a time, instead of what was set before; the zero time is never.
func (p *passage) set(timer **time.Timer, t time.Time, then func()) error {
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

// LocalAddr is nowhere.
func (p *passage) LocalAddr() net.Addr { return inTunnel("server") }

// RemoteAddr is where it leads, as the node sees it.
func (p *passage) RemoteAddr() net.Addr { return inTunnel(p.to) }

// inTunnel is an address in a tunnel.
type inTunnel string

// Network is the name of this kind of network.
func (inTunnel) Network() string { return "tunnel" }

func (a inTunnel) String() string { return string(a) }
