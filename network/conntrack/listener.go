package conntrack

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// groupsNewAndChanged are multicast groups of connection tracking, as bits: of entries that are new, and of entries that have changed.
const groupsNewAndChanged = 1<<0 | 1<<1

// eventBuffer is how many bytes of events wait to be read.
const eventBuffer = 1 << 20

// ErrLost is the error of events that came faster than they were read.
var ErrLost = errors.New("there are too many connections to see all of them")

// eventWait is how long Read waits for events.
const eventWait = 100 * time.Millisecond

// Listener receives events of the connection tracking table of one network namespace, for one caller at a time. While there is a listener,
// the kernel makes events of every new connection, so it should be open for a short time only.
type Listener struct {
	socket *socket
	buffer []byte
	flow   Flow
}

// Listen returns a Listener for the network namespace that the thread is in. It hears of connections that begin from now on.
func Listen() (*Listener, error) {
	s, err := openFor(groupsNewAndChanged, eventWait)
	if err != nil {
		return nil, fmt.Errorf("listen for connections: %w", err)
	}
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, eventBuffer); err != nil {
		return nil, errors.Join(fmt.Errorf("listen for connections: %w", err), s.close())
	}
	return &Listener{socket: s, buffer: make([]byte, buffer)}, nil
}

// Close closes the socket.
func (l *Listener) Close() error { return l.socket.close() }

// Read passes the next events to a function, which must not keep the Flow that it gets, and returns how many there were: 0 when there was
// none for a tenth of a second.
func (l *Listener) Read(handle func(*Flow)) (int, error) {
	n, err := l.socket.receive(l.buffer)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return 0, nil
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.EMSGSIZE):
		return 0, ErrLost
	case err != nil:
		return 0, fmt.Errorf("read events of connections: %w", err)
	}
	count := 0
	for m := range messages(l.buffer[:n]) {
		if m.kind == messageFlow && l.flow.read(m.body) {
			count++
			handle(&l.flow)
		}
	}
	return count, nil
}

// tcpEstablished is the state of a TCP connection that both sides have accepted.
const tcpEstablished = 3

// IsAnswered reports whether the other side has accepted the connection: a TCP connection is established, any other has got a reply. A
// connection that was refused is not.
func (f *Flow) IsAnswered() bool {
	if f.Protocol == unix.IPPROTO_TCP {
		return f.State == tcpEstablished
	}
	return f.status&answered != 0
}
