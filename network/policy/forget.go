package policy

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"proa.dev/network/conntrack"
)

// forgetter makes the kernel forget the connections of addresses that are others' now. What was let through when it began is not
// judged again, and the next owner of an address could go on with it. To look for them is a pass over all connections that the
// kernel knows, so it is done beside the rules and for all addresses of a while together. Only a Pod that gets such an address
// waits for it.
type forgetter struct {
	look func(map[netip.Addr]bool) error
	end  func() error // closes what look uses
	log  *slog.Logger
	wake chan struct{}

	turn  chan struct{} // has something in it during a look, and guards ended
	ended bool

	mu     sync.Mutex // guards what follows
	waits  map[netip.Addr]bool
	leaves map[netip.Addr]bool // what is being looked for
}

// newForgetter opens the way to the kernel, in the network namespace that the thread is in.
func newForgetter(log *slog.Logger) (*forgetter, error) {
	connections, err := conntrack.Open()
	if err != nil {
		return nil, err
	}
	return makeForgetter(connections.Forget, connections.Close, log), nil
}

func makeForgetter(look func(map[netip.Addr]bool) error, end func() error, log *slog.Logger) *forgetter {
	return &forgetter{look: look, end: end, log: log, wake: make(chan struct{}, 1), turn: make(chan struct{}, 1), waits: map[netip.Addr]bool{}}
}

// note says what is to be forgotten. The rules in force are those of the new owners.
func (f *forgetter) note(lost map[netip.Addr]bool) {
	if len(lost) == 0 {
		return
	}
	f.mu.Lock()
	maps.Copy(f.waits, lost)
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
		}
		start := time.Now()
		f.pass()
		select {
		case <-ctx.Done():
			return
		case <-time.After(2 * time.Since(start)):
		}
	}
}

// settle returns when nothing of these addresses is left to be forgotten.
func (f *forgetter) settle(addrs []netip.Addr) {
	f.mu.Lock()
	open := slices.ContainsFunc(addrs, func(a netip.Addr) bool { return f.waits[a] || f.leaves[a] })
	f.mu.Unlock()
	if open {
		f.pass()
	}
}

// pass forgets all that was noted before it was called: what another pass has taken is done when it is this one's turn.
func (f *forgetter) pass() {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	f.mu.Lock()
	lost := f.waits
	f.waits, f.leaves = map[netip.Addr]bool{}, lost
	f.mu.Unlock()
	if len(lost) > 0 && !f.ended {
		if err := f.look(lost); err != nil {
			f.log.Warn("connections of Pods that are gone may be used by those who have their addresses now",
				"err", fmt.Errorf("forget connections of addresses that nobody has any more: %w", err))
		}
	}
	f.mu.Lock()
	f.leaves = nil
	f.mu.Unlock()
}

// close ends the way to the kernel, after the look that goes on.
func (f *forgetter) close() {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	f.ended = true
	_ = f.end()
}
