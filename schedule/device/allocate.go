package device

import (
	"fmt"
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// search looks for devices for some claims, step by step, and goes back where it gets stuck.
type search struct {
	*Allocator
	node     *corev1.Node
	claims   []*resourcev1.ResourceClaim
	requests []request
	rules    map[int][]*rule // by claim
	chosen   map[ID][]int    // whole devices, with the claims that they are for
	shares   map[ID]*shares
	left     map[counter]resource.Quantity
	steps    int   // how many more devices may be tried
	err      error // that ends the search
}

// shares are those of one device that are chosen.
type shares struct {
	count int
	draws Amounts
}

// request is one request of one claim. picks are the devices of the way that is tried.
type request struct {
	claim int
	ways  []*want
	way   *want
	picks []fit
}

// counter is one that devices of a pool share.
type counter struct{ driver, pool, set, name string }

// Allocate finds devices for claims on a node, or returns nil if there are none.
func (a *Allocator) Allocate(node *corev1.Node, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error) {
	devices, err := a.reachable(node)
	if err != nil {
		return nil, err
	}
	s := &search{Allocator: a, node: node, claims: claims, rules: map[int][]*rule{}, chosen: map[ID][]int{}, shares: map[ID]*shares{}, left: a.counters(), steps: freeSteps + a.purse}
	for i, claim := range claims {
		least := 0
		for j := range claim.Spec.Devices.Requests {
			ways, err := a.wants(claim, &claim.Spec.Devices.Requests[j])
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
					claim.Namespace, claim.Name, claim.Spec.Devices.Requests[j].Name, fewest, resourcev1.AllocationResultsMaxSize, least-fewest)
			}
			s.requests = append(s.requests, request{claim: i, ways: ways})
		}
		for _, c := range claim.Spec.Devices.Constraints {
			s.rules[i] = append(s.rules[i], &rule{DeviceConstraint: c})
		}
	}
	found := s.from(0)
	a.purse = min(a.purse, max(0, s.steps))
	switch {
	case found:
		return s.results()
	case s.err != nil:
		return nil, s.err
	case s.steps < 0:
		return nil, fmt.Errorf("node %s: %w", node.Name, errTooLong)
	case slices.ContainsFunc(devices, func(c *candidate) bool { return c.pool.invalid }):
		return nil, fmt.Errorf("invalid resource pools were encountered%w", silent{})
	}
	return nil, nil
}

// counters are the shared counters of all pools, less what devices draw that are taken.
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
					change(left, p, &s.Spec.Devices[i], false)
				}
			}
		}
	}
	return left
}

// draws yields the counters that a device draws on, with how much.
func draws(p *pool, d *resourcev1.Device) iter.Seq2[counter, resource.Quantity] {
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

// change takes from the counters what a device needs, or gives it back.
func change(left map[counter]resource.Quantity, p *pool, d *resourcev1.Device, back bool) {
	for c, q := range draws(p, d) {
		has := left[c]
		if back {
			has.Add(q)
		} else {
			has.Sub(q)
		}
		left[c] = has
	}
}

// suffices says that the counters have what a device needs.
func suffices(left map[counter]resource.Quantity, p *pool, d *resourcev1.Device) bool {
	for c, q := range draws(p, d) {
		if has, found := left[c]; !found || has.Cmp(q) < 0 {
			return false
		}
	}
	return true
}

// from satisfies the requests from one on.
func (s *search) from(at int) bool {
	if at == len(s.requests) {
		return true
	}
	r := &s.requests[at]
	for _, w := range r.ways {
		r.way, r.picks = w, nil
		if w.count > 0 && s.room(at) >= w.count && s.pick(at, 0) { // all of none is none
			return true
		}
	}
	r.way = nil
	return false
}

// room is how many devices the claim of a request can still have.
func (s *search) room(at int) int {
	left := resourcev1.AllocationResultsMaxSize
	for _, r := range s.requests[:at] {
		if r.claim == s.requests[at].claim {
			left -= len(r.picks)
		}
	}
	return left
}

// pick chooses the devices of a request one after the other, the next one behind the last, and then goes on to the next request.
func (s *search) pick(at, next int) bool {
	r := &s.requests[at]
	if len(r.picks) == r.way.count {
		return s.from(at + 1)
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
		s.giveBack(r, c)
	}
	return false
}

// take chooses a device if it is free, or has enough to share, and the rules of the claim allow it. Who has admin access
// needs no free device, but gets each only once.
func (s *search) take(r *request, c fit) bool {
	if s.busy(r, c) || !s.suffices(c) {
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
	if !shared(c.Device) {
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

// giveBack undoes what take has done last.
func (s *search) giveBack(r *request, c fit) {
	for _, rule := range s.rules[r.claim] {
		rule.remove(r.way)
	}
	if of := s.shares[c.ID]; shared(c.Device) {
		of.draws.sub(c.draws)
		if of.count--; of.count == 0 {
			delete(s.shares, c.ID)
		}
	} else {
		s.chosen[c.ID] = s.chosen[c.ID][:len(s.chosen[c.ID])-1]
	}
	s.charge(c, true)
}

// busy says that somebody has a device.
func (s *search) busy(r *request, c fit) bool {
	if r.way.isAdmin() {
		return slices.Contains(s.chosen[c.ID], r.claim)
	}
	return s.in.Used.Whole[c.ID] || len(s.chosen[c.ID]) > 0
}

// suffices says that a device has what would be drawn of it besides what others draw, and the counters of its pool too.
func (s *search) suffices(c fit) bool {
	if !s.charged(c) && !suffices(s.left, c.pool, c.Device) {
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

// charged says that others have a share of a device, so that the counters have been drawn on already.
func (s *search) charged(c fit) bool {
	_, used := s.in.Used.Shares[c.ID]
	return shared(c.Device) && (used || s.shares[c.ID] != nil)
}

// charge draws on the counters for a device, or gives back, unless other shares of it do.
func (s *search) charge(c fit, back bool) {
	if !s.charged(c) {
		change(s.left, c.pool, c.Device, back)
	}
}
