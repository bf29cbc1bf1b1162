package conntrack

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// socket is a netlink socket for netfilter. Its calls block until the kernel has handled the request.
type socket struct {
	fd  int
	seq uint32 // the sequence number of the last request
}

func open() (*socket, error) { return openFor(0, patience) }

// openFor opens a socket that receives the events of multicast groups, and whose calls return after a timeout.
func openFor(groups uint32, timeout time.Duration) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	limit := unix.NsecToTimeval(timeout.Nanoseconds())
	err = errors.Join(
		unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit),
	)
	s := &socket{fd: fd}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *socket) close() error { return unix.Close(s.fd) }

// next returns the next sequence number.
func (s *socket) next() uint32 {
	s.seq++
	return s.seq
}

func (s *socket) send(b []byte) error {
	for {
		if err := unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// receive returns the next message of the kernel. Messages of other senders are ignored.
func (s *socket) receive(b []byte) (int, error) {
	for {
		n, from, err := unix.Recvfrom(s.fd, b, unix.MSG_TRUNC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if who, ok := from.(*unix.SockaddrNetlink); !ok || who.Pid != 0 {
			continue
		}
		if n > len(b) {
			return 0, unix.EMSGSIZE
		}
		return n, nil
	}
}

// ask sends the last count requests, which ask for acknowledgements, and waits for these. It returns the first error
// except ENOENT.
func (s *socket) ask(questions []byte, count int, buffer []byte) error {
	if err := s.send(questions); err != nil {
		return err
	}
	first := s.seq - uint32(count) + 1
	var failed error
	for count > 0 {
		n, err := s.receive(buffer)
		if err != nil {
			return err
		}
		for m := range messages(buffer[:n]) {
			if m.kind != unix.NLMSG_ERROR || m.seq-first > s.seq-first {
				continue
			}
			count--
			if err := m.fault(); failed == nil && !errors.Is(err, unix.ENOENT) {
				failed = err
			}
		}
	}
	return failed
}
