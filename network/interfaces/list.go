package interfaces

import (
	"errors"

	"github.com/vishvananda/netlink"
)

// Links returns all interfaces.
func Links(host *netlink.Handle) ([]netlink.Link, error) { return complete(host.LinkList) }

// Addresses returns the addresses of an interface, or of all interfaces if it is nil.
func Addresses(host *netlink.Handle, link netlink.Link) ([]netlink.Addr, error) {
	return complete(func() ([]netlink.Addr, error) { return host.AddrList(link, netlink.FAMILY_ALL) })
}

// attempts is how often a list is read that the kernel says may be incomplete.
const attempts = 5

// complete reads a list again if the kernel says that something was changed while it was read: an entry may be missing then. On a
// machine where that happens all the time, the last list counts.
func complete[T any](list func() ([]T, error)) (out []T, err error) {
	for range attempts {
		if out, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
	return out, nil
}
