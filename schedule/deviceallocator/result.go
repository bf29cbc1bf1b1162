package deviceallocator

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
)

// results returns the allocations of the claims, with their configuration and the nodes on which they can be used.
func (s *search) results() ([]resourcev1.AllocationResult, error) {
	out := make([]resourcev1.AllocationResult, len(s.claims))
	var err error
	for i, claim := range s.claims {
		var picks []fit
		var ways []*alternative
		for _, r := range s.requests {
			if r.claim != i {
				continue
			}
			ways = append(ways, r.way)
			for _, c := range r.picks {
				picks = append(picks, c)
				out[i].Devices.Results = append(out[i].Devices.Results, s.result(r.way, c))
			}
		}
		out[i].Devices.Config = configs(claim, ways)
		if out[i].NodeSelector, err = nodes(s.node.Name, picks); err != nil {
			return nil, fmt.Errorf("create NodeSelector for claim %s: %w", claim.Name, err)
		}
	}
	return out, nil
}

func (s *search) result(w *alternative, c fit) resourcev1.DeviceRequestAllocationResult {
	out := resourcev1.DeviceRequestAllocationResult{
		Request: w.ref(), Driver: c.Driver, Pool: c.Pool, Device: c.ID.Device, Tolerations: w.tolerations,
		BindingConditions: c.BindingConditions, BindingFailureConditions: c.BindingFailureConditions,
	}
	if w.isAdmin() {
		out.AdminAccess = w.admin
	}
	if isShared(c.Device) {
		id := s.in.NewID()
		out.ShareID = &id
		if len(c.draws) > 0 {
			out.ConsumedCapacity = c.draws
		}
	}
	return out
}

// configs returns the configurations of the classes and of the claim that apply to the chosen devices.
func configs(claim *resourcev1.ResourceClaim, ways []*alternative) (out []resourcev1.DeviceAllocationConfiguration) {
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
	named := func(list []string, w *alternative) bool {
		return slices.Contains(list, w.ref()) || w.parent != "" && slices.Contains(list, w.parent)
	}
	for _, c := range claim.Spec.Devices.Config {
		if len(c.Requests) == 0 || slices.ContainsFunc(ways, func(w *alternative) bool { return named(c.Requests, w) }) {
			out = append(out, resourcev1.DeviceAllocationConfiguration{
				Source: resourcev1.AllocationConfigSourceClaim, Requests: c.Requests, DeviceConfiguration: c.DeviceConfiguration,
			})
		}
	}
	for i := range out { // what is about every request need not name them
		if !slices.ContainsFunc(ways, func(w *alternative) bool { return !named(out[i].Requests, w) }) {
			out[i].Requests = nil
		}
	}
	return out
}

// nodes returns the selector of the nodes on which all devices can be used; nil for all nodes. Some devices bind their
// claim to the node.
func nodes(node string, picks []fit) (*corev1.NodeSelector, error) {
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
		if c.local != nil || c.BindsToNode != nil && *c.BindsToNode {
			return &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
				{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
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
