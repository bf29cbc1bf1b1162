package machine

import (
	"errors"
	"net/netip"
	"syscall"
)

// ReserveRanges reserves networks for the cluster that this process is about to start, and says whether nobody else had reserved one of them. Two
// clusters that start at the same moment see no bridge of each other yet, and would take the same networks. A reservation is a Unix socket that is
// named after the network and needs no file; it lasts until the process ends. By then the cluster has bridges, which others see.
func ReserveRanges(networks []netip.Prefix) bool {
	var held []int
	for _, network := range networks {
		socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			continue // where nothing can be reserved the machine's addresses still count
		}
		held = append(held, socket)
		if err := syscall.Bind(socket, &syscall.SockaddrUnix{Name: "@proa-network-" + network.Masked().String()}); errors.Is(err, syscall.EADDRINUSE) {
			for _, s := range held {
				_ = syscall.Close(s) // a socket that nobody was told of has nothing to lose
			}
			return false
		}
	}
	return true
}
