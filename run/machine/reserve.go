package machine

import (
	"errors"
	"net/netip"
	"syscall"
)

// reservationPrefix begins the names of the sockets that reserve networks.
const reservationPrefix = "@proa-network-"

// ReserveRanges reserves networks for the cluster that this process is about to start, and tells whether none of them
// was reserved before. Two clusters that start at the same moment do not see a bridge of each other yet, and would take
// the same networks. A reservation is an abstract Unix socket that is named after the network; it lasts until the
// process ends. By then the cluster has bridges, which others see.
func ReserveRanges(networks []netip.Prefix) bool {
	var held []int
	for _, network := range networks {
		socket, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			continue // without a reservation the addresses of the machine are still checked
		}
		held = append(held, socket)
		if err := syscall.Bind(socket, &syscall.SockaddrUnix{Name: reservationPrefix + network.Masked().String()}); errors.Is(err,
			syscall.EADDRINUSE) {
			for _, s := range held {
				_ = syscall.Close(s) // nothing has been sent to it
			}
			return false
		}
	}
	return true
}
