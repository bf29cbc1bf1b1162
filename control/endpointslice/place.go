package endpointslice

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// placement is the working state for the slices of one set of ports.
type placement struct {
	plan
	unchanged []*discoveryv1.EndpointSlice
	updated   map[string]*discoveryv1.EndpointSlice // copies, by name
}

// placeEndpoints puts endpoints into slices so that few slices change, because every change is sent to every node. Existing endpoints
// stay in their slices. New ones go first to slices that change anyway, then together to the unchanged slice that they fill
// best, and else to new slices. Slices are not merged otherwise.
func placeEndpoints(s *corev1.Service, g *group, have []*discoveryv1.EndpointSlice) (plan, []*corev1.Pod) {
	p := placement{updated: map[string]*discoveryv1.EndpointSlice{}}
	changed := p.keepExisting(s, g, have)
	var rest []discoveryv1.Endpoint
	for _, id := range g.order {
		if c, left := g.endpoints[id]; left {
			delete(g.endpoints, id)
			rest, changed = append(rest, c.Endpoint), append(changed, c.pod)
		}
	}
	// The fullest slice comes first, so that slices fill up.
	updated := slices.SortedFunc(maps.Values(p.updated), func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Or(cmp.Compare(len(b.Endpoints), len(a.Endpoints)), cmp.Compare(a.Name, b.Name))
	})
	for _, slice := range updated {
		rest = fill(slice, rest)
	}
	for len(rest) > 0 {
		if best := p.takeBestFit(len(rest)); best != nil {
			next := best.DeepCopy()
			rest = fill(next, rest)
			updated = append(updated, next)
			continue
		}
		next := newSlice(s, g.family, g.ports)
		rest = fill(next, rest)
		p.create = append(p.create, next)
	}
	p.update = updated
	return p.plan, changed
}

// keepExisting updates the endpoints of the existing slices, and removes them from the group. It returns the pods that have become
// ready or unready.
func (p *placement) keepExisting(s *corev1.Service, g *group, have []*discoveryv1.EndpointSlice) (changed []*corev1.Pod) {
	want := labels(s)
	for _, slice := range have {
		kept, differs := make([]discoveryv1.Endpoint, 0, len(slice.Endpoints)), false
		for i := range slice.Endpoints {
			was := &slice.Endpoints[i]
			id := identify(was)
			c, ok := g.endpoints[id]
			if !ok {
				differs = true
				continue
			}
			delete(g.endpoints, id)
			if isSameEndpoint(was, &c.Endpoint) {
				kept = append(kept, *was)
				continue
			}
			differs, kept = true, append(kept, c.Endpoint)
			if !equalPointers(was.Conditions.Serving, c.Conditions.Serving) {
				changed = append(changed, c.pod)
			}
		}
		switch {
		case len(kept) == 0 && (differs || len(slice.Endpoints) == 0):
			p.remove = append(p.remove, slice)
		case differs || !maps.Equal(slice.Labels, want):
			next := slice.DeepCopy()
			next.Endpoints, next.Labels = nil, maps.Clone(want)
			for i := range kept { // kept endpoints are shared with the view
				next.Endpoints = append(next.Endpoints, *kept[i].DeepCopy())
			}
			p.updated[next.Name] = next
		default:
			p.unchanged = append(p.unchanged, slice)
		}
	}
	return changed
}

// takeBestFit removes and returns the unchanged slice that n more endpoints fill best; nil if they do not fit into one.
func (p *placement) takeBestFit(n int) *discoveryv1.EndpointSlice {
	at := -1
	for i, s := range p.unchanged {
		if room := maxEndpoints - len(s.Endpoints); room >= n && (at < 0 || room < maxEndpoints-len(p.unchanged[at].Endpoints)) {
			at = i
		}
	}
	if at < 0 || n >= maxEndpoints {
		return nil
	}
	out := p.unchanged[at]
	p.unchanged = slices.Delete(p.unchanged, at, at+1)
	return out
}

// fill moves endpoints into a slice and returns those that do not fit.
func fill(s *discoveryv1.EndpointSlice, endpoints []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	n := min(len(endpoints), max(0, maxEndpoints-len(s.Endpoints)))
	s.Endpoints = append(s.Endpoints, endpoints[:n]...)
	return endpoints[n:]
}
