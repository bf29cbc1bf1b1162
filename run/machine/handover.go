package machine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"proa.dev/network/httpproxy"
	"proa.dev/run/datafolder"
	"proa.dev/run/machine/nodefolder"
)

// An agent of the first node that is replaced, because the program or the settings have changed, gives its listening sockets to the next
// one, so that no client is turned away:
//
//	the server asks the old agent to leave the node; the old one ends all but the proxies, and unlocks the folder
//	the new one starts, asks at the hand-over socket of the old one for each of its listening sockets, and sends "done" when it serves
//	the old one accepts no more connections, lets requests in flight finish, and ends
//
// As long as the new one does not say that it serves, the old one does.

const (
	// successorTimeout is how long an agent that has left its node waits for the next one.
	successorTimeout = 2 * time.Minute
	// drainTimeout is how long requests in flight may take when an agent is replaced.
	drainTimeout = 30 * time.Second
	// lingerTimeout is how long clients that keep a connection have to send a request on it, whose answer then asks them to close it.
	lingerTimeout = 3 * time.Second
	// askTimeout is how long the other agent may take for an answer.
	askTimeout = 5 * time.Second
	// doneMessage says that the next agent serves. No name of a socket is like it.
	doneMessage = "done"
)

// sockets are the listening sockets of the proxies of an agent, by name.
type sockets struct {
	log   *slog.Logger
	drain *httpproxy.Drain

	mu     sync.Mutex // guards what follows
	former *net.UnixConn
	open   map[string]*socket
	// replaced is closed when the next agent serves.
	replaced chan struct{}
}

// socket is a listening socket that another process may share.
type socket struct {
	*net.TCPListener
	forget func()
	closed chan struct{}
	once   sync.Once
	// left is set when this process accepts no more connections of a socket that goes on elsewhere; sockets.mu guards it.
	left bool
	of   *sockets
}

// newSockets returns sockets that are taken over from the agent that listens at a hand-over socket, if there is one.
func newSockets(file string, log *slog.Logger) *sockets {
	s := &sockets{log: log, drain: &httpproxy.Drain{}, open: map[string]*socket{}, replaced: make(chan struct{})}
	if c, err := net.Dial("unix", file); err == nil {
		s.former = c.(*net.UnixConn)
	}
	return s
}

// listen takes a socket over from the former agent, or opens one.
func (s *sockets) listen(name, address string) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.inherit(name)
	if l == nil {
		other, err := net.Listen("tcp", address)
		if err != nil {
			return nil, err
		}
		l = other.(*net.TCPListener)
	}
	k := &socket{TCPListener: l, closed: make(chan struct{}), of: s}
	k.forget = func() {
		if s.open[name] == k {
			delete(s.open, name)
		}
	}
	s.open[name] = k
	return k, nil
}

// inherit asks the former agent for a socket; nil if it has none. The caller holds mu.
func (s *sockets) inherit(name string) *net.TCPListener {
	if s.former == nil {
		return nil
	}
	_ = s.former.SetDeadline(time.Now().Add(askTimeout))
	l, err := receive(s.former, name)
	if err != nil {
		s.log.Warn("a port cannot be taken over from the former agent, and is opened anew", "port", name, "err", err)
		_ = s.former.Close()
		s.former = nil
	}
	return l
}

// receive asks for a socket by its name, and returns nil if the other side does not have it.
func receive(c *net.UnixConn, name string) (*net.TCPListener, error) {
	if _, err := c.Write([]byte(name + "\n")); err != nil {
		return nil, err
	}
	answer, control := make([]byte, 1), make([]byte, unix.CmsgSpace(4))
	n, m, _, _, err := c.ReadMsgUnix(answer, control)
	if err != nil || n == 0 || m == 0 {
		return nil, err
	}
	all, err := unix.ParseSocketControlMessage(control[:m])
	if err != nil || len(all) != 1 {
		return nil, errors.Join(err, errors.New("the answer has no socket"))
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) != 1 {
		return nil, errors.Join(err, errors.New("the answer has no socket"))
	}
	f := os.NewFile(uintptr(fds[0]), name)
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(l.Close(), fmt.Errorf("%s is no TCP socket", name))
	}
	return tcp, nil
}

// serving tells the former agent that this one serves, so that it ends.
func (s *sockets) serving() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.former == nil {
		return
	}
	_, _ = s.former.Write([]byte(doneMessage + "\n")) // it ends by itself, a little later
	_ = s.former.Close()
	s.former = nil
}

// handOver gives the sockets to the next agent, which asks for them at a hand-over socket, until ctx ends.
func (s *sockets) handOver(ctx context.Context, file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an old socket: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o711); err != nil { //nolint:gosec // G301: processes of Pods pass through it, see runtime
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: file, Net: "unix"})
	if err != nil {
		return fmt.Errorf("listen for the next agent: %w", err)
	}
	l.SetUnlinkOnClose(false) // the file may be that of the next agent by then
	if err := os.Chmod(file, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer func() {
		select {
		case <-s.replaced:
		default:
			_ = os.Remove(file)
		}
	}()
	for {
		c, err := l.AcceptUnix()
		if err != nil {
			return err
		}
		go s.give(ctx, c)
	}
}

// give answers one process that asks for sockets.
func (s *sockets) give(ctx context.Context, c *net.UnixConn) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		name := lines.Text()
		if name == doneMessage {
			s.mu.Lock()
			defer s.mu.Unlock()
			select {
			case <-s.replaced:
			default:
				close(s.replaced)
			}
			return
		}
		if err := s.send(c, name); err != nil {
			s.log.Warn("a port cannot be given to the next agent", "port", name, "err", err)
			return
		}
	}
}

func (s *sockets) send(c *net.UnixConn, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.open[name]
	if k == nil {
		_, err := c.Write([]byte{'n'})
		return err
	}
	raw, err := k.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { _, _, sent = c.WriteMsgUnix([]byte{'y'}, unix.UnixRights(int(fd)), nil) }); err != nil {
		return err
	}
	return sent
}

// leave accepts no more connections, and returns when no request is in flight any more, or when drainTimeout is over.
func (s *sockets) leave(ctx context.Context) {
	s.mu.Lock()
	for _, k := range s.open {
		k.left = true
		_ = k.TCPListener.Close()
	}
	s.mu.Unlock()
	ctx, stop := context.WithTimeout(ctx, drainTimeout)
	defer stop()
	s.drain.Wait(ctx, lingerTimeout)
}

// Accept waits for a connection. When this process has left the socket to another one, it waits until the socket is closed.
func (k *socket) Accept() (net.Conn, error) {
	c, err := k.TCPListener.Accept()
	if err == nil {
		return c, nil
	}
	k.of.mu.Lock()
	left := k.left
	k.of.mu.Unlock()
	if left {
		<-k.closed
	}
	return nil, err
}

// Close closes the socket in this process.
func (k *socket) Close() error {
	k.of.mu.Lock()
	k.forget()
	k.of.mu.Unlock()
	k.once.Do(func() { close(k.closed) })
	if err := k.TCPListener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// handoverSocket returns the socket at which the first node's agent gives its listening sockets to the next one.
func handoverSocket(dataDir string) string {
	return strings.TrimSuffix(nodefolder.ControlSocket(dataDir), "agent.sock") + "handover.sock"
}

// awaitSuccessor is called by an agent that has left its node. It returns when the next agent serves and no request is in flight here, or
// when there is no next agent after a while. Commands that end agents find this one by its lock.
func (s *sockets) awaitSuccessor(ctx context.Context, dataDir string) {
	release, err := datafolder.Lock(nodefolder.LeavingDir(dataDir), 0)
	if err != nil {
		s.log.WarnContext(ctx, "another agent is still leaving", "err", err)
	} else {
		defer release()
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(successorTimeout):
		s.log.WarnContext(ctx, "no other agent has taken over the ports; they are closed")
		return
	case <-s.replaced:
	}
	s.log.InfoContext(ctx, "the next agent serves; requests in flight finish here")
	s.leave(ctx)
}
