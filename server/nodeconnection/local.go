package nodeconnection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// local is an agent in this process: an HTTP server without an address.
type local struct {
	transport *http.Transport
	server    *http.Server
	conns     chan net.Conn
	ended     chan struct{}
	once      sync.Once
	wg        sync.WaitGroup
}

func newLocal(h http.Handler, log *slog.Logger) *local {
	l := &local{conns: make(chan net.Conn), ended: make(chan struct{})}
	l.transport = transport()
	l.transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) { return l.dial(ctx) }
	l.server = &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	l.wg.Go(func() {
		if err := l.server.Serve(l); !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, errClosed) {
			log.Error("the HTTP server of the agent in this process has failed", "err", err)
		}
	})
	return l
}

func (l *local) close() {
	l.once.Do(func() { close(l.ended) })
	_ = l.server.Close()
	l.transport.CloseIdleConnections()
	l.wg.Wait()
}

// dial makes a connection and hands the other end to the server.
func (l *local) dial(ctx context.Context) (net.Conn, error) {
	near, far, err := socketPair()
	if err != nil {
		return nil, err
	}
	select {
	case l.conns <- far:
		return near, nil
	case <-l.ended:
		err = errClosed
	case <-ctx.Done():
		err = ctx.Err()
	}
	_ = near.Close()
	_ = far.Close()
	return nil, err
}

// Accept waits for a connection.
func (l *local) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.ended:
		return nil, errClosed
	}
}

// Close ends Accept.
func (l *local) Close() error {
	l.once.Do(func() { close(l.ended) })
	return nil
}

// Addr returns a placeholder.
func (l *local) Addr() net.Addr { return &net.UnixAddr{Name: "@inside", Net: "unix"} }

// socketPair returns two connected sockets. Unlike a net.Pipe, the kernel buffers between them, as for any connection.
func socketPair() (a, b net.Conn, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a connection within the process: %w", err)
	}
	var out [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "inside")
		c, ferr := net.FileConn(f) // duplicates the file descriptor
		_ = f.Close()
		out[i], err = c, errors.Join(err, ferr)
	}
	if err != nil {
		for _, c := range out {
			if c != nil {
				_ = c.Close()
			}
		}
		return nil, nil, err
	}
	return out[0], out[1], nil
}
