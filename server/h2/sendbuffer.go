package h2

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// SendBufferFull reports whether the kernel accepts no more bytes for a peer, because the peer has not read those that
// were sent. A connection without a file descriptor, such as a pipe within this process, counts as full.
func SendBufferFull(conn net.Conn) bool {
	for { // below TLS
		outer, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		conn = outer.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return true
	}
	full := true
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(fds, 0)
		full = err != nil || n == 0
	})
	return full
}
