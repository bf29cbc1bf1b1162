package servicetable

import (
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"proa.dev/network/conntrack"
)

// cleaner deletes conntrack entries that lead to removed endpoints: those of UDP at once, unanswered ones of TCP after a delay. It collects
// the endpoints of a while, so that one pass over the connection table serves all of them.
type cleaner struct {
	*conntrack.Cleaner
	connections *conntrack.Conn
	log         *slog.Logger
	clean       func([]udpTarget, removedTCP) // deleteEntries, except in tests

	mu         sync.Mutex // guards what follows
	udpTargets []udpTarget
	removedTCP removedTCP
	tcpDue     time.Time // when the entries of removedTCP are deleted
	lastTCP    time.Time // when entries of TCP were deleted the last time
}

// minTCPInterval is the least time between two passes for TCP. Where endpoints change all the time, as in rollouts, these passes would cost
// more than everything else, and they nearly always find nothing.
const minTCPInterval = 5 * time.Second

// newCleaner opens the connection table of the network namespace that the thread is in.
func newCleaner(log *slog.Logger) (*cleaner, error) {
	connections, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	c := &cleaner{connections: connections, log: log}
	c.Cleaner = conntrack.NewCleaner(c.pass, c.due)
	c.clean = c.deleteEntries
	return c, nil
}

// add requests that entries are deleted. The rules no longer lead to these endpoints.
func (c *cleaner) add(udp []udpTarget, tcp removedTCP) {
	if len(udp) == 0 && len(tcp) == 0 {
		return
	}
	c.mu.Lock()
	c.udpTargets = append(c.udpTargets, udp...)
	if len(c.removedTCP) == 0 {
		c.removedTCP, c.tcpDue = removedTCP{}, time.Now().Add(retireDelay)
		if next := c.lastTCP.Add(minTCPInterval); next.After(c.tcpDue) {
			c.tcpDue = next
		}
	}
	for a := range tcp {
		c.removedTCP[a] = true
	}
	c.mu.Unlock()
	c.Wake()
}

// due receives a value when entries of TCP are to be deleted.
func (c *cleaner) due() <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.removedTCP) == 0 {
		return nil
	}
	return time.After(time.Until(c.tcpDue))
}

// pass deletes the entries that are due.
func (c *cleaner) pass() {
	if udp, tcp := c.take(time.Now()); len(udp)+len(tcp) > 0 {
		c.clean(udp, tcp)
	}
}

func (c *cleaner) take(now time.Time) (udp []udpTarget, tcp removedTCP) {
	c.mu.Lock()
	defer c.mu.Unlock()
	udp, c.udpTargets = c.udpTargets, nil
	if len(c.removedTCP) > 0 && !now.Before(c.tcpDue) {
		tcp, c.removedTCP, c.lastTCP = c.removedTCP, nil, now
	}
	return udp, tcp
}

// deleteEntries makes a pass over the connections of each address family that is concerned.
func (c *cleaner) deleteEntries(targets []udpTarget, removed removedTCP) {
	for _, six := range []bool{false, true} {
		if index := indexUDPTargets(targets, six); len(index.vips)+len(index.nodePorts) > 0 {
			c.drop(index.filter(six), index.isStale)
		}
		if removed.has(six) {
			c.drop(conntrack.Filter{Six: six, Protocol: tcp, Unanswered: true}, removed.isStale)
		}
	}
}

func (c *cleaner) drop(filter conntrack.Filter, isStale func(*conntrack.Flow) bool) {
	if err := c.connections.Drop(filter, isStale); err != nil {
		c.log.Warn("connections may go to removed endpoints for a while", "err", err)
	}
}

// removedTCP are the TCP endpoints that were removed. When a node vanishes, the kernel remembers for two minutes where
// unanswered connections lead; a client that uses one of their ports again would be sent there too.
type removedTCP map[netip.AddrPort]bool

func (r removedTCP) has(six bool) bool {
	for a := range r {
		if a.Addr().Is6() == six {
			return true
		}
	}
	return false
}
