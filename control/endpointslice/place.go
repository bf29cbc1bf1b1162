package endpointslice

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// placement is the work on the slices of one set of ports.
type placement struct {
	plan
	unchanged []*discoveryv1.EndpointSlice
	updated   map[string]*discoveryv1.EndpointSlice // copies, by name
}

// place puts endpoints into slices so that few slices change, for every change goes to every node. Endpoints stay where
// they are. New ones go first to slices that change anyway, then together to the one unchanged slice that they fill best,
// and else to new slices. Slices are never merged for that alone.
func place(s *corev1.Service, g *group, have []*discoveryv1.EndpointSlice) (plan, []*corev1.Pod) {
	p := placement{updated: map[string]*discoveryv1.EndpointSlice{}}
	changed := p.keep(s, g, have)
	var rest []discoveryv1.Endpoint
	for _, id := range g.order {
		if c, left := g.endpoints[id]; left {
			delete(g.endpoints, id)
			rest, changed = append(rest, c.Endpoint), append(changed, c.pod)
		}
	}
	// The fullest first, so that slices get full.
	updated := slices.SortedFunc(maps.Values(p.updated), func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Or(cmp.Compare(len(b.Endpoints), len(a.Endpoints)), cmp.Compare(a.Name, b.Name))
	})
	for _, slice := range updated {
		rest = fill(slice, rest)
	}
	for len(rest) > 0 {
		if best := p.best(len(rest)); best != nil {
			next := best.DeepCopy()
			rest = fill(next, rest)
			updated = append(updated, next)
			continue
		}
		next := fresh(s, g.family, g.ports)
		rest = fill(next, rest)
		p.create = append(p.create, next)
	}
	p.update = updated
	return p.plan, changed
}

// keep goes through the present slices and takes what they have from the group. It returns the pods that have become
// able or unable to serve.
func (p *placement) keep(s *corev1.Service, g *group, have []*discoveryv1.EndpointSlice) (changed []*corev1.Pod) {
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
			if same(was, &c.Endpoint) {
				kept = append(kept, *was)
				continue
			}
			differs, kept = true, append(kept, c.Endpoint)
			if !equal(was.Conditions.Serving, c.Conditions.Serving) {
				changed = append(changed, c.pod)
			}
		}
		switch {
		case len(kept) == 0 && (differs || len(slice.Endpoints) == 0):
			p.remove = append(p.remove, slice)
		case differs || !maps.Equal(slice.Labels, want):
			next := slice.DeepCopy()
			next.Endpoints, next.Labels = nil, maps.Clone(want)
			for i := range kept { // what is kept is shared with the view
				next.Endpoints = append(next.Endpoints, *kept[i].DeepCopy())
			}
			p.updated[next.Name] = next
		default:
			p.unchanged = append(p.unchanged, slice)
		}
	}
	return changed
}

// best takes the unchanged slice that n more endpoints fill best, if all fit into one.
func (p *placement) best(n int) *discoveryv1.EndpointSlice {
	at := -1
	for i, s := range p.unchanged {
		if room := most - len(s.Endpoints); room >= n && (at < 0 || room < most-len(p.unchanged[at].Endpoints)) {
			at = i
		}
	}
	if at < 0 || n >= most {
		return nil
	}
	out := p.unchanged[at]
	p.unchanged = slices.Delete(p.unchanged, at, at+1)
	return out
}

// fill moves endpoints into a slice and returns those that do not fit.
func fill(s *discoveryv1.EndpointSlice, endpoints []discoveryv1.Endpoint) []discoveryv1.Endpoint {
	n := min(len(endpoints), max(0, most-len(s.Endpoints)))
	s.Endpoints = append(s.Endpoints, endpoints[:n]...)
	return endpoints[n:]
}
