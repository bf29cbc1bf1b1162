package service

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// forgetter makes the kernel forget connections that lead to endpoints that are gone: UDP streams at once, unanswered TCP ones after
// a while. To look for them is a pass over all connections that the kernel knows, which takes seconds on a busy node. So it is
// done beside the rules, which must not wait for it, and for all endpoints of a while together.
type forgetter struct {
	conntrack *netlink.Handle
	log       *slog.Logger
	wake      chan struct{}
	look      func([]stream, openings) // pass, but in tests

	mu       sync.Mutex // guards what follows
	streams  []stream
	openings openings
	since    time.Time // when the first of the openings was noted
}

// newForgetter opens the way to the kernel, in the network namespace that the thread is in.
func newForgetter(log *slog.Logger) (*forgetter, error) {
	conntrack, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	f := &forgetter{conntrack: conntrack, log: log, wake: make(chan struct{}, 1)}
	f.look = f.pass
	return f, nil
}

// note says what is to be forgotten. The rules lead nobody there any more.
func (f *forgetter) note(streams []stream, gone openings) {
	if len(streams) == 0 && len(gone) == 0 {
		return
	}
	f.mu.Lock()
	f.streams = append(f.streams, streams...)
	if len(f.openings) == 0 {
		f.openings, f.since = openings{}, time.Now()
	}
	for a := range gone {
		f.openings[a] = true
	}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// run forgets what was noted, until ctx ends. It takes no more than a third of a processor.
func (f *forgetter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-f.wake:
		case <-f.due():
		}
		start := time.Now()
		if streams, gone := f.take(start); len(streams)+len(gone) > 0 {
			f.look(streams, gone)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Since(start)):
		}
	}
}

// due is when the openings have waited for long enough.
func (f *forgetter) due() <-chan time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.openings) == 0 {
		return nil
	}
	return time.After(time.Until(f.since.Add(rest)))
}

// take returns what is to be forgotten now.
func (f *forgetter) take(now time.Time) (streams []stream, gone openings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	streams, f.streams = f.streams, nil
	if len(f.openings) > 0 && now.Sub(f.since) >= rest {
		gone, f.openings = f.openings, nil
	}
	return streams, gone
}

// pass looks at all connections, once for each family that something is about.
func (f *forgetter) pass(streams []stream, gone openings) {
	for _, six := range []bool{false, true} {
		var filters []netlink.CustomConntrackFilter
		for _, s := range streams {
			if s.six == six {
				filters = append(filters, s)
			}
		}
		if gone.has(six) {
			filters = append(filters, gone)
		}
		if len(filters) == 0 {
			continue
		}
		version := netlink.InetFamily(unix.AF_INET)
		if six {
			version = unix.AF_INET6
		}
		if _, err := f.conntrack.ConntrackDeleteFilters(netlink.ConntrackTable, version, filters...); err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			f.log.Warn("connections may be led to endpoints that are gone for a while", "err", err)
		}
	}
}

// openings are the TCP endpoints that are gone. When a node vanishes, the kernel remembers for two minutes where the connections
// lead that nobody answered; a client that uses one of their ports again would be led there too.
type openings map[netip.AddrPort]bool

func (o openings) has(six bool) bool {
	for a := range o {
		if a.Addr().Is6() == six {
			return true
		}
	}
	return false
}
