package hostaddress

import (
	"errors"
	"net"
	"syscall"
	"time"
)

// Listen listens at an address. It retries for two seconds while the address is in use, because the sockets of a killed
// process may take a moment to close.
func Listen(address string) (net.Listener, error) {
	for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		l, err := net.Listen("tcp", address)
		if !errors.Is(err, syscall.EADDRINUSE) || time.Since(begin) > 2*time.Second {
			return l, err
		}
	}
}
