package networkpolicy

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"proa.dev/network/conntrack"
)

// addressCleaner deletes the conntrack entries of addresses that have a new owner. Established connections are not
// checked against the rules again, so the next owner of an address could continue those of the former one. Entries are
// deleted in the background, for many addresses at once. Only a Pod that gets such an address waits for it.
type addressCleaner struct {
	*conntrack.Cleaner
	forget func(map[netip.Addr]bool) error // deletes the entries of addresses
	end    func() error                    // closes what forget uses
	log    *slog.Logger

	passing chan struct{} // a semaphore: holds a value during a pass; guards closed
	closed  bool

	mu      sync.Mutex // guards what follows
	waiting map[netip.Addr]bool
	current map[netip.Addr]bool // the addresses of the pass that is under way
}

// openAddressCleaner opens the connection table of the network namespace that the thread is in.
func openAddressCleaner(log *slog.Logger) (*addressCleaner, error) {
	connections, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	return newAddressCleaner(connections.Forget, connections.Close, log), nil
}

func newAddressCleaner(forget func(map[netip.Addr]bool) error, end func() error, log *slog.Logger) *addressCleaner {
	c := &addressCleaner{forget: forget, end: end, log: log, passing: make(chan struct{}, 1), waiting: map[netip.Addr]bool{}}
	c.Cleaner = conntrack.NewCleaner(c.pass, nil)
	return c
}

// add requests that the entries of addresses are deleted. The rules in force are those of the new owners.
func (c *addressCleaner) add(addrs map[netip.Addr]bool) {
	if len(addrs) == 0 {
		return
	}
	c.mu.Lock()
	maps.Copy(c.waiting, addrs)
	c.mu.Unlock()
	c.Wake()
}

// waitFor returns when no entries of these addresses are left to delete.
func (c *addressCleaner) waitFor(addrs []netip.Addr) {
	c.mu.Lock()
	pending := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return c.waiting[a] || c.current[a] })
	c.mu.Unlock()
	if pending {
		c.pass()
	}
}

// pass deletes the entries of all addresses that were added before the call. Those that another pass has taken are done when that pass
// releases the semaphore.
func (c *addressCleaner) pass() {
	c.passing <- struct{}{}
	defer func() { <-c.passing }()
	c.mu.Lock()
	addrs := c.waiting
	c.waiting, c.current = map[netip.Addr]bool{}, addrs
	c.mu.Unlock()
	if len(addrs) > 0 && !c.closed {
		if err := c.forget(addrs); err != nil {
			c.log.Warn("connections of deleted Pods are left; the next owners of their addresses may inherit them",
				"err", fmt.Errorf("forget connections of addresses that nobody has any more: %w", err))
		}
	}
	c.mu.Lock()
	c.current = nil
	c.mu.Unlock()
}

// close closes the connection table after the pass that is under way.
func (c *addressCleaner) close() {
	c.passing <- struct{}{}
	defer func() { <-c.passing }()
	c.closed = true
	_ = c.end()
}
