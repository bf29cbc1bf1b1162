package ipam

import (
	"net/netip"
	"slices"
	"sync"
)

// pool remembers where to search for the next free network, and which networks are being written into which Node. It is only
// a cache: with an empty pool the same networks are free, and the search is slower.
type pool struct {
	ranges []Range

	mu          sync.Mutex // guards what follows
	next        []uint32   // the block to try next, by range
	reserved    map[netip.Prefix]string
	reservedFor map[string][]netip.Prefix // the reserved networks of a node
}

func newPool(ranges []Range) *pool {
	ranges = slices.Clone(ranges)
	for i := range ranges {
		ranges[i] = ranges[i].Complete()
	}
	return &pool{ranges: ranges, next: make([]uint32, len(ranges)), reserved: map[netip.Prefix]string{},
		reservedFor: map[string][]netip.Prefix{}}
}

// reserve reserves a free network of each IP family for a node. full are the ranges of the families that have none left.
func (p *pool) reserve(node string, busy func(netip.Prefix) bool) (cidrs []netip.Prefix, full []Range) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have := p.reservedFor[node]; len(have) > 0 {
		free := true
		for _, b := range have {
			free = free && !busy(b)
		}
		if free {
			return have, nil
		}
		p.releaseLocked(node)
	}
	done := map[bool]bool{}
	for i, r := range p.ranges {
		six := r.CIDR.Addr().Is6()
		if done[six] {
			continue
		}
		if b, ok := p.findFree(i, busy); ok {
			done[six] = true
			cidrs = append(cidrs, b)
		}
	}
	for _, r := range p.ranges {
		if !done[r.CIDR.Addr().Is6()] {
			full = append(full, r)
		}
	}
	if len(full) > 0 {
		return nil, full
	}
	for _, b := range cidrs {
		p.reserved[b] = node
	}
	p.reservedFor[node] = cidrs
	return cidrs, nil
}

// findFree returns a free network of a range, searching from the last one on.
func (p *pool) findFree(i int, busy func(netip.Prefix) bool) (netip.Prefix, bool) {
	r := p.ranges[i]
	for step := range r.size() {
		at := (p.next[i] + step) % r.size()
		b := r.block(at)
		if _, held := p.reserved[b]; held || busy(b) {
			continue
		}
		p.next[i] = (at + 1) % r.size()
		return b, true
	}
	return netip.Prefix{}, false
}

// release releases the networks that are reserved for a node: they were written, the node was deleted, or others shall be
// tried.
func (p *pool) release(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked(node)
}

func (p *pool) releaseLocked(node string) {
	for _, b := range p.reservedFor[node] {
		delete(p.reserved, b)
	}
	delete(p.reservedFor, node)
}
