package ipam

import (
	"net/netip"
	"slices"
	"sync"
)

// pool remembers where to look for the next free network, and which networks are on their way to which node. Nothing depends
// on it: whoever starts with an empty one finds the same networks free, only slower.
type pool struct {
	ranges []Range

	mu   sync.Mutex // guards what follows
	next []uint32   // of each range, the block to try next
	held map[netip.Prefix]string
	of   map[string][]netip.Prefix // what is held for a node
}

func newPool(ranges []Range) *pool {
	ranges = slices.Clone(ranges)
	for i := range ranges {
		ranges[i] = ranges[i].Complete()
	}
	return &pool{ranges: ranges, next: make([]uint32, len(ranges)), held: map[netip.Prefix]string{}, of: map[string][]netip.Prefix{}}
}

// take finds a free network of each family for a node. full are the ranges of a family that has none left.
func (p *pool) take(node string, busy func(netip.Prefix) bool) (cidrs []netip.Prefix, full []Range) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have := p.of[node]; len(have) > 0 {
		free := true
		for _, b := range have {
			free = free && !busy(b)
		}
		if free {
			return have, nil
		}
		p.drop(node)
	}
	done := map[bool]bool{}
	for i, r := range p.ranges {
		six := r.CIDR.Addr().Is6()
		if done[six] {
			continue
		}
		if b, ok := p.find(i, busy); ok {
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
		p.held[b] = node
	}
	p.of[node] = cidrs
	return cidrs, nil
}

// find goes round a range once.
func (p *pool) find(i int, busy func(netip.Prefix) bool) (netip.Prefix, bool) {
	r := p.ranges[i]
	for step := range r.size() {
		at := (p.next[i] + step) % r.size()
		b := r.block(at)
		if _, held := p.held[b]; held || busy(b) {
			continue
		}
		p.next[i] = (at + 1) % r.size()
		return b, true
	}
	return netip.Prefix{}, false
}

// forget ends what is held for a node: it has its networks, is gone, or others shall be tried.
func (p *pool) forget(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop(node)
}

func (p *pool) drop(node string) {
	for _, b := range p.of[node] {
		delete(p.held, b)
	}
	delete(p.of, node)
}
