package pod

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	"proa.dev/network/nft"
)

// drain is where records wait for the end of their interface. The kernel takes tens of milliseconds to remove an interface,
// under a lock that every other change of interfaces needs. The runtime drops the namespace after DEL anyhow, and then the
// kernel removes many in one go. So nothing is removed at DEL. A second later the interface is nearly always gone; if it is
// not, it is removed here. Only then is the address free.
type drain struct {
	n       *Network
	mu      sync.Mutex // guards waiting
	waiting []waiting
	wake    chan struct{}
}

type waiting struct {
	*record
	since time.Time
}

const patience = time.Second

// init makes those wait again that an earlier process had not seen the end of.
func (d *drain) init(n *Network, records []*record) {
	d.n, d.wake = n, make(chan struct{}, 1)
	for _, r := range records {
		if r.Deleted {
			d.add(r)
		}
	}
}

// add makes a record wait.
func (d *drain) add(r *record) {
	d.mu.Lock()
	d.waiting = append(d.waiting, waiting{r, time.Now()})
	d.mu.Unlock()
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// run ends the wait of records, until ctx ends.
func (d *drain) run(ctx context.Context) {
	for {
		d.mu.Lock()
		var timer <-chan time.Time
		if len(d.waiting) > 0 {
			timer = time.After(patience)
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
		d.flush(time.Now().Add(-patience))
	}
}

// flush frees the addresses of those that have waited since before, and removes their interfaces if they are still there.
func (d *drain) flush(before time.Time) {
	d.mu.Lock()
	var due []waiting
	d.waiting = slices.DeleteFunc(d.waiting, func(w waiting) bool {
		ripe := !w.since.After(before)
		if ripe {
			due = append(due, w)
		}
		return ripe
	})
	d.mu.Unlock()
	var gone []*record
	for _, w := range due {
		if err := d.n.detach(w.record); err != nil {
			d.n.Log.Warn("an address cannot be used again yet", "address", w.Addresses, "err", err)
			d.add(w.record)
			continue
		}
		if d.taken(w.record) {
			d.add(w.record)
			continue
		}
		gone = append(gone, w.record)
	}
	d.release(gone)
}

// taken tells whether others believe that a record still has its addresses.
func (d *drain) taken(r *record) bool {
	return d.n.Guard != nil && slices.ContainsFunc(r.Addresses, d.n.Guard.Taken)
}

// release frees addresses, after everything is forgotten that the next owner must not inherit. A kernel that cannot do that
// must not run out of addresses.
func (d *drain) release(gone []*record) {
	if len(gone) == 0 {
		return
	}
	addrs := map[netip.Addr]bool{}
	for _, r := range gone {
		for _, a := range r.Addresses {
			addrs[a] = true
		}
	}
	err := nft.Forget(d.n.host, addrs)
	if d.n.rules != nil {
		err = errors.Join(err, d.n.rules.forgetSources(gone))
	}
	if err != nil {
		d.n.Log.Warn("something is left of Pods that are gone; who gets their addresses may have their connections", "err", err)
	}
	for _, r := range gone {
		if d.n.Guard != nil {
			d.n.Guard.Detach(r.Addresses)
		}
		if err := d.n.pool.release(r); err != nil {
			d.n.Log.Warn("an address cannot be used again yet", "address", r.Addresses, "err", err)
			d.add(r)
		}
	}
}
