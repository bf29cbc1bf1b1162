package podnetwork

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"proa.dev/internal/wait"
)

// drain holds the records of deleted containers until their interfaces are removed. The kernel takes tens of
// milliseconds to remove an interface, under a lock that every other change of interfaces needs. The runtime removes
// the namespace after DEL anyway, and then the kernel removes many interfaces at once. So DEL removes nothing. A second
// later the interface has nearly always disappeared; otherwise it is removed here. Only then is the address free.
type drain struct {
	n       *Network
	mu      sync.Mutex // guards waiting
	waiting []waiting
	wake    wait.Signal
}

type waiting struct {
	*record
	since time.Time
}

// drainDelay is how long a record waits for its interface to disappear.
const drainDelay = time.Second

// init adds the deleted records of an earlier process.
func (d *drain) init(n *Network, records []*record) {
	d.n, d.wake = n, wait.NewSignal()
	for _, r := range records {
		if r.Deleted {
			d.add(r)
		}
	}
}

// add adds a record.
func (d *drain) add(r *record) {
	d.mu.Lock()
	d.waiting = append(d.waiting, waiting{r, time.Now()})
	d.mu.Unlock()
	d.wake.Send()
}

// run frees records until ctx ends.
func (d *drain) run(ctx context.Context) {
	for {
		d.mu.Lock()
		var timer <-chan time.Time
		if len(d.waiting) > 0 {
			timer = time.After(drainDelay)
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-d.wake:
			if timer == nil {
				continue
			}
			select {
			case <-ctx.Done():
				return
			case <-timer:
			}
		case <-timer:
		}
		d.flush(time.Now().Add(-drainDelay))
	}
}

// flush frees the addresses of records that were added before a time, and removes their interfaces if they still exist.
func (d *drain) flush(before time.Time) {
	d.mu.Lock()
	var due []waiting
	d.waiting = slices.DeleteFunc(d.waiting, func(w waiting) bool {
		isDue := !w.since.After(before)
		if isDue {
			due = append(due, w)
		}
		return isDue
	})
	d.mu.Unlock()
	var free []*record
	for _, w := range due {
		if err := d.n.detach(w.record); err != nil {
			d.n.Log.Warn("an address cannot be freed yet", "address", w.Addresses, "err", err)
			d.add(w.record)
			continue
		}
		if d.isTaken(w.record) {
			d.add(w.record)
			continue
		}
		free = append(free, w.record)
	}
	d.release(free)
}

// isTaken reports whether the API still shows a Pod with an address of the record.
func (d *drain) isTaken(r *record) bool {
	return d.n.Guard != nil && slices.ContainsFunc(r.Addresses, d.n.Guard.Taken)
}

// release frees addresses after the conntrack entries and rules of their former owner are deleted. If that fails, the
// addresses are freed nevertheless: the node must not run out of addresses.
func (d *drain) release(free []*record) {
	if len(free) == 0 {
		return
	}
	addrs := map[netip.Addr]bool{}
	for _, r := range free {
		for _, a := range r.Addresses {
			addrs[a] = true
		}
	}
	err := d.n.connections.forgetAddresses(addrs)
	if d.n.rules != nil {
		err = errors.Join(err, d.n.rules.forgetSources(free))
	}
	if err != nil {
		d.n.Log.Warn("connections or rules of deleted Pods are left; the next owners of their addresses may inherit them", "err", err)
	}
	for _, r := range free {
		if d.n.Guard != nil {
			d.n.Guard.Detach(r.Addresses)
		}
		if err := d.n.pool.release(r); err != nil {
			d.n.Log.Warn("an address cannot be freed yet", "address", r.Addresses, "err", err)
			d.add(r)
		}
	}
}
