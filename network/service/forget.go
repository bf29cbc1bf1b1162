package service

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"proa.dev/network/conntrack"
)

// forgetter makes the kernel forget connections that lead to endpoints that are gone: UDP streams at once, unanswered TCP ones after
// a while. To look for them is a pass over all connections that the kernel knows, also if it shows few of them. So it is done
// beside the rules, which must not wait for it, and for all endpoints of a while together.
type forgetter struct {
	connections *conntrack.Conn
	log         *slog.Logger
	wake        chan struct{}
	look        func([]stream, openings) // pass, but in tests

	mu       sync.Mutex // guards what follows
	streams  []stream
	openings openings
	ripe     time.Time // when the openings are looked for
	looked   time.Time // when they were the last time
}

// pause is the least time from one look for openings to the next. Where endpoints come and go all the time, as in rollouts, the looks
// cost more than all else, and nearly always find nothing.
const pause = 5 * time.Second

// newForgetter opens the way to the kernel, in the network namespace that the thread is in.
func newForgetter(log *slog.Logger) (*forgetter, error) {
	connections, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	f := &forgetter{connections: connections, log: log, wake: make(chan struct{}, 1)}
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
		f.openings, f.ripe = openings{}, time.Now().Add(rest)
		if again := f.looked.Add(pause); again.After(f.ripe) {
			f.ripe = again
		}
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
	return time.After(time.Until(f.ripe))
}

// take returns what is to be forgotten now.
func (f *forgetter) take(now time.Time) (streams []stream, gone openings) {
	f.mu.Lock()
	defer f.mu.Unlock()
	streams, f.streams = f.streams, nil
	if len(f.openings) > 0 && !now.Before(f.ripe) {
		gone, f.openings, f.looked = f.openings, nil, now
	}
	return streams, gone
}

// pass looks at the connections of each family that something is about.
func (f *forgetter) pass(streams []stream, gone openings) {
	for _, six := range []bool{false, true} {
		if l := lanesOf(streams, six); len(l.vips)+len(l.nodePorts) > 0 {
			f.drop(l.filter(six), l.lost)
		}
		if gone.has(six) {
			f.drop(conntrack.Filter{Six: six, Protocol: tcp, Unanswered: true}, gone.lost)
		}
	}
}

func (f *forgetter) drop(among conntrack.Filter, lost func(*conntrack.Flow) bool) {
	if err := f.connections.Drop(among, lost); err != nil {
		f.log.Warn("connections may be led to endpoints that are gone for a while", "err", err)
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
