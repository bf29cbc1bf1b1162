package deviceallocator

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// search is a backtracking search for the devices of some claims on one node.
type search struct {
	*Allocator
	node     *corev1.Node
	claims   []*resourcev1.ResourceClaim
	requests []request
	rules    map[int][]*constraint // by claim
	chosen   map[ID][]int          // whole devices, with the claims that they are for
	shares   map[ID]*shares
	left     map[counter]resource.Quantity
	steps    int   // how many more devices may be tried
	err      error // that ends the search
}

// shares are the shares of one device that the search has chosen.
type shares struct {
	count int
	draws Amounts
}

// request is one request of one claim. picks are the devices that are chosen for the alternative that is being tried.
type request struct {
	claim int
	ways  []*alternative
	way   *alternative
	picks []fit
}

// counter identifies a counter that devices of a pool share.
type counter struct{ driver, pool, set, name string }

// Allocate returns allocations for claims on a node, or nil if there are not enough devices.
func (a *Allocator) Allocate(node *corev1.Node, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error) {
	devices, err := a.reachable(node)
	if err != nil {
		return nil, err
	}
	s := &search{Allocator: a, node: node, claims: claims, rules: map[int][]*constraint{}, chosen: map[ID][]int{}, shares: map[ID]*shares{},
		left: a.counters(), steps: freeSteps + a.purse}
	for i, claim := range claims {
		least := 0
		for j := range claim.Spec.Devices.Requests {
			ways, err := a.alternativesOf(claim, &claim.Spec.Devices.Requests[j])
			if err != nil {
				return nil, err
			}
			fewest := resourcev1.AllocationResultsMaxSize + 1
			for _, w := range ways {
				if err := a.match(claim, w, devices); err != nil {
					return nil, err
				}
				fewest = min(fewest, w.count)
			}
			if least += fewest; least > resourcev1.AllocationResultsMaxSize {
				return nil, fmt.Errorf("claim %s/%s, request %s: adding %d devices exceeds the claim limit of %d, with %d already accounted for",
					claim.Namespace, claim.Name, claim.Spec.Devices.Requests[j].Name, fewest, resourcev1.AllocationResultsMaxSize,
					least-fewest)
			}
			s.requests = append(s.requests, request{claim: i, ways: ways})
		}
		for _, c := range claim.Spec.Devices.Constraints {
			s.rules[i] = append(s.rules[i], &constraint{DeviceConstraint: c})
		}
	}
	found := s.satisfyFrom(0)
	a.purse = min(a.purse, max(0, s.steps))
	switch {
	case found:
		return s.results()
	case s.err != nil:
		return nil, s.err
	case s.steps < 0:
		return nil, fmt.Errorf("node %s: %w", node.Name, errTooLong)
	case slices.ContainsFunc(devices, func(c *candidate) bool { return c.pool.invalid }):
		return nil, fmt.Errorf("invalid resource pools were encountered%w", silentUnavailable{})
	}
	return nil, nil
}

// counters returns the shared counters of all pools, reduced by what allocated devices consume.
func (a *Allocator) counters() map[counter]resource.Quantity {
	left := map[counter]resource.Quantity{}
	for _, p := range a.pools {
		for _, s := range p.slices {
			for _, set := range s.Spec.SharedCounters {
				for name, c := range set.Counters {
					left[counter{p.driver, p.name, set.Name, name}] = c.Value.DeepCopy()
				}
			}
		}
	}
	for _, p := range a.pools {
		for _, s := range p.slices {
			for i := range s.Spec.Devices {
				if id := (ID{p.driver, p.name, s.Spec.Devices[i].Name}); a.in.Used.has(id) {
					chargeCounters(left, p, &s.Spec.Devices[i], false)
				}
			}
		}
	}
	return left
}

// consumedCounters yields the counters that a device consumes, with the amounts.
func consumedCounters(p *pool, d *resourcev1.Device) iter.Seq2[counter, resource.Quantity] {
	return func(yield func(counter, resource.Quantity) bool) {
		for _, set := range d.ConsumesCounters {
			for name, c := range set.Counters {
				if !yield(counter{p.driver, p.name, set.CounterSet, name}, c.Value) {
					return
				}
			}
		}
	}
}

// chargeCounters subtracts what a device consumes from the counters, or adds it again.
func chargeCounters(left map[counter]resource.Quantity, p *pool, d *resourcev1.Device, back bool) {
	for c, q := range consumedCounters(p, d) {
		has := left[c]
		if back {
			has.Add(q)
		} else {
			has.Sub(q)
		}
		left[c] = has
	}
}

// hasEnoughCounters reports whether the counters have what a device consumes.
func hasEnoughCounters(left map[counter]resource.Quantity, p *pool, d *resourcev1.Device) bool {
	for c, q := range consumedCounters(p, d) {
		if has, found := left[c]; !found || has.Cmp(q) < 0 {
			return false
		}
	}
	return true
}

// satisfyFrom satisfies the requests from an index on.
func (s *search) satisfyFrom(at int) bool {
	if at == len(s.requests) {
		return true
	}
	r := &s.requests[at]
	for _, w := range r.ways {
		r.way, r.picks = w, nil
		if w.count > 0 && s.devicesLeft(at) >= w.count && s.pick(at, 0) { // all of none is none
			return true
		}
	}
	r.way = nil
	return false
}

// devicesLeft returns how many more devices the claim of a request may get.
func (s *search) devicesLeft(at int) int {
	left := resourcev1.AllocationResultsMaxSize
	for _, r := range s.requests[:at] {
		if r.claim == s.requests[at].claim {
			left -= len(r.picks)
		}
	}
	return left
}

// pick chooses the devices of a request one after the other, in the order of candidates, and then continues with the
// next request.
func (s *search) pick(at, next int) bool {
	r := &s.requests[at]
	if len(r.picks) == r.way.count {
		return s.satisfyFrom(at + 1)
	}
	for i := next; i < len(r.way.fits); i++ {
		if len(r.way.fits)-i < r.way.count-len(r.picks) {
			return false
		}
		if s.steps--; s.steps < 0 || s.err != nil {
			return false
		}
		c := r.way.fits[i]
		if !s.take(r, c) {
			continue
		}
		r.picks = append(r.picks, c)
		if s.pick(at, i+1) {
			return true
		}
		r.picks = r.picks[:len(r.picks)-1]
		s.undoTake(r, c)
	}
	return false
}

// take chooses a device if it is free or can be shared, and the constraints of the claim allow it. With admin access a
// device need not be free, but is chosen only once.
func (s *search) take(r *request, c fit) bool {
	if s.isAllocated(r, c) || !s.hasEnough(c) {
		return false
	}
	rules := s.rules[r.claim]
	for i, rule := range rules {
		if rule.add(r.way, c.candidate) {
			continue
		}
		for _, done := range rules[:i] {
			done.remove(r.way)
		}
		if r.way.all {
			s.err = fmt.Errorf("claim %s/%s, request %s: cannot add device %s because a claim constraint would not be satisfied",
				s.claims[r.claim].Namespace, s.claims[r.claim].Name, r.way.ref(), c.ID)
		}
		return false
	}
	s.charge(c, false)
	if !isShared(c.Device) {
		s.chosen[c.ID] = append(s.chosen[c.ID], r.claim)
		return true
	}
	if s.shares[c.ID] == nil {
		s.shares[c.ID] = &shares{draws: Amounts{}}
	}
	s.shares[c.ID].count++
	s.shares[c.ID].draws.add(c.draws)
	return true
}

// undoTake undoes the last take.
func (s *search) undoTake(r *request, c fit) {
	for _, rule := range s.rules[r.claim] {
		rule.remove(r.way)
	}
	if of := s.shares[c.ID]; isShared(c.Device) {
		of.draws.sub(c.draws)
		if of.count--; of.count == 0 {
			delete(s.shares, c.ID)
		}
	} else {
		s.chosen[c.ID] = s.chosen[c.ID][:len(s.chosen[c.ID])-1]
	}
	s.charge(c, true)
}

// isAllocated reports whether a device is allocated.
func (s *search) isAllocated(r *request, c fit) bool {
	if r.way.isAdmin() {
		return slices.Contains(s.chosen[c.ID], r.claim)
	}
	return s.in.Used.Whole[c.ID] || len(s.chosen[c.ID]) > 0
}

// hasEnough reports whether a device has enough capacity left for a share, and its pool enough in its counters.
func (s *search) hasEnough(c fit) bool {
	if !s.isCharged(c) && !hasEnoughCounters(s.left, c.pool, c.Device) {
		return false
	}
	for name, q := range c.draws {
		sum := q.DeepCopy()
		sum.Add(s.in.Used.Shares[c.ID][name])
		if of := s.shares[c.ID]; of != nil {
			sum.Add(of.draws[name])
		}
		if sum.Cmp(c.Capacity[name].Value) > 0 {
			return false
		}
	}
	return true
}

// isCharged reports whether the counters are already charged for a device, because another share of it is allocated.
func (s *search) isCharged(c fit) bool {
	_, used := s.in.Used.Shares[c.ID]
	return isShared(c.Device) && (used || s.shares[c.ID] != nil)
}

// charge charges the counters for a device, or undoes that, unless they are charged for another share of it.
func (s *search) charge(c fit, back bool) {
	if !s.isCharged(c) {
		chargeCounters(s.left, c.pool, c.Device, back)
	}
}
