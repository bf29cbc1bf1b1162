package device

import (
	"errors"
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
	requests []request
	rules    map[int][]*rule // by claim
	chosen   map[ID]bool
	left     map[counter]resource.Quantity
	steps    int
}

// request is one request of one claim. picks are the devices of the way that is tried.
type request struct {
	claim int
	ways  []*want
	way   *want
	picks []*candidate
}

// counter is one that devices of a pool share.
type counter struct{ driver, pool, set, name string }

// Allocate finds devices for claims on a node, or returns nil if there are none.
func (a *Allocator) Allocate(node *corev1.Node, claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error) {
	devices, err := a.reachable(node)
	if err != nil {
		return nil, err
	}
	s := &search{Allocator: a, node: node, rules: map[int][]*rule{}, chosen: map[ID]bool{}, left: a.counters()}
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
	if !s.from(0) {
		if s.steps > mostSteps {
			return nil, fmt.Errorf("node %s: %w", node.Name, errTooLong)
		}
		return nil, nil
	}
	return s.results(claims)
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
				if id := (ID{p.driver, p.name, s.Spec.Devices[i].Name}); a.in.Taken[id] {
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
		if w.count > 0 && s.pick(at, 0) { // all of none is none
			return true
		}
	}
	r.way = nil
	return false
}

// pick chooses the devices of a request one after the other, the next one behind the last, and then goes on to the next request.
func (s *search) pick(at, next int) bool {
	if s.steps++; s.steps > mostSteps {
		return false
	}
	r := &s.requests[at]
	if len(r.picks) == r.way.count {
		return s.from(at + 1)
	}
	for i := next; i < len(r.way.fits); i++ {
		if len(r.way.fits)-i < r.way.count-len(r.picks) {
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

// take chooses a device if it is free and the rules of the claim allow it. Who has admin access needs no free device.
func (s *search) take(r *request, c *candidate) bool {
	admin := r.way.admin != nil && *r.way.admin
	if !admin && (s.in.Taken[c.ID] || s.chosen[c.ID] || !suffices(s.left, c.pool, c.Device)) {
		return false
	}
	rules := s.rules[r.claim]
	for i, rule := range rules {
		if rule.add(r.way, c) {
			continue
		}
		for _, done := range rules[:i] {
			done.remove(r.way)
		}
		return false
	}
	if admin {
		return true
	}
	change(s.left, c.pool, c.Device, false)
	s.chosen[c.ID] = true
	return true
}

func (s *search) giveBack(r *request, c *candidate) {
	for _, rule := range s.rules[r.claim] {
		rule.remove(r.way)
	}
	if r.way.admin != nil && *r.way.admin {
		return
	}
	delete(s.chosen, c.ID)
	change(s.left, c.pool, c.Device, true)
}

// results are the allocations of the claims, with the configuration that applies and the nodes they can be used on.
func (s *search) results(claims []*resourcev1.ResourceClaim) ([]resourcev1.AllocationResult, error) {
	out := make([]resourcev1.AllocationResult, len(claims))
	var err error
	for i, claim := range claims {
		var picks []*candidate
		var ways []*want
		for _, r := range s.requests {
			if r.claim != i {
				continue
			}
			ways = append(ways, r.way)
			for _, c := range r.picks {
				picks = append(picks, c)
				out[i].Devices.Results = append(out[i].Devices.Results, resourcev1.DeviceRequestAllocationResult{
					Request: r.way.ref(), Driver: c.Driver, Pool: c.Pool, Device: c.ID.Device, AdminAccess: r.way.admin, Tolerations: r.way.tolerations,
				})
			}
		}
		out[i].Devices.Config = configs(claim, ways)
		if out[i].NodeSelector, err = nodes(picks); err != nil {
			return nil, fmt.Errorf("create NodeSelector for claim %s: %w", claim.Name, err)
		}
	}
	return out, nil
}

// configs are those of the classes and of the claim that are about what was chosen.
func configs(claim *resourcev1.ResourceClaim, ways []*want) (out []resourcev1.DeviceAllocationConfiguration) {
	done := map[string][2]int{}
	for _, w := range ways {
		if at, is := done[w.class.Name]; is {
			for i := at[0]; i < at[1]; i++ {
				out[i].Requests = append(out[i].Requests, w.ref())
			}
			continue
		}
		first := len(out)
		for _, c := range w.class.Spec.Config {
			out = append(out, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClass, Requests: []string{w.ref()}, DeviceConfiguration: c.DeviceConfiguration,
			})
		}
		done[w.class.Name] = [2]int{first, len(out)}
	}
	named := func(list []string, w *want) bool {
		return slices.Contains(list, w.ref()) || w.parent != "" && slices.Contains(list, w.parent)
	}
	for _, c := range claim.Spec.Devices.Config {
		if len(c.Requests) == 0 || slices.ContainsFunc(ways, func(w *want) bool { return named(c.Requests, w) }) {
			out = append(out, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClaim, Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration,
			})
		}
	}
	for i := range out { // what is about every request need not name them
		if !slices.ContainsFunc(ways, func(w *want) bool { return !named(out[i].Requests, w) }) {
			out[i].Requests = nil
		}
	}
	return out
}

// nodes select those from which all devices can be reached; nil is every node.
func nodes(picks []*candidate) (*corev1.NodeSelector, error) {
	var term corev1.NodeSelectorTerm
	add := func(to *[]corev1.NodeSelectorRequirement, from []corev1.NodeSelectorRequirement) {
		for _, r := range from {
			known := slices.ContainsFunc(*to, func(o corev1.NodeSelectorRequirement) bool {
				return o.Key == r.Key && o.Operator == r.Operator && slices.Equal(o.Values, r.Values)
			})
			if !known {
				*to = append(*to, r)
			}
		}
	}
	for _, c := range picks {
		if c.local != nil {
			return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{*c.local}},
			}}}}, nil
		}
		if c.selector == nil || len(c.selector.NodeSelectorTerms) == 0 {
			continue
		}
		if len(c.selector.NodeSelectorTerms) > 1 {
			return nil, errors.New("unsupported ResourceSlice.NodeSelector with several terms")
		}
		add(&term.MatchFields, c.selector.NodeSelectorTerms[0].MatchFields)
		add(&term.MatchExpressions, c.selector.NodeSelectorTerms[0].MatchExpressions)
	}
	if len(term.MatchFields)+len(term.MatchExpressions) == 0 {
		return nil, nil
	}
	return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}, nil
}
