package connlimit

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"proa.dev/internal/wait"
)

// listener counts the connections of a listener, and survives a lack of descriptors.
type listener struct {
	net.Listener
	budget  *Budget
	name    string
	class   Class
	closed  chan struct{}
	once    sync.Once
	failing bool // used by Accept only, which one goroutine calls
}

// Listener returns a listener whose connections count in the budget under a name, in a class. One that cannot accept
// because descriptors or memory are short tries again until it is closed.
func (b *Budget) Listener(l net.Listener, name string, class Class) net.Listener {
	return &listener{Listener: l, budget: b, name: name, class: class, closed: make(chan struct{})}
}

// Accept waits for a connection.
func (l *listener) Accept() (net.Conn, error) {
	pause := wait.Backoff{First: 5 * time.Millisecond, Max: time.Second}
	for {
		c, err := l.Listener.Accept()
		if err == nil {
			l.report(nil)
			return l.budget.admit(c, l.name, l.class), nil
		}
		if !isTemporary(err) {
			return nil, err
		}
		if !errors.Is(err, syscall.ECONNABORTED) {
			l.report(err)
			l.budget.free()
		}
		timer := time.NewTimer(pause.Next())
		select {
		case <-l.closed:
			timer.Stop()
			return nil, net.ErrClosed
		case <-timer.C:
		}
	}
}

// Close ends Accept.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// report logs when the listener begins and ceases to fail.
func (l *listener) report(err error) {
	if l.budget == nil || l.failing == (err != nil) {
		return
	}
	if l.failing = err != nil; l.failing {
		l.budget.log.Error("connections cannot be accepted; it is tried again and connections of clients that nobody knows are closed. More descriptors (LimitNOFILE of the service, ulimit -n) or memory may help",
			"listener", l.name, "err", err)
		return
	}
	l.budget.log.Info("connections are accepted again", "listener", l.name)
}

// isTemporary reports whether a later Accept may succeed: the client has gone, or the machine lacks something.
func isTemporary(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.ECONNRESET,
		syscall.EPROTO, syscall.EINTR, syscall.EPERM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
