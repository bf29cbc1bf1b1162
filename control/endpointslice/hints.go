package endpointslice

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// hint completes the slices of a plan with where their endpoints are best used from, and adds to the plan the slices whose
// hints must change.
func hint(st state, family discoveryv1.AddressType, have []*discoveryv1.EndpointSlice, p *plan) {
	unchanged := slices.DeleteFunc(slices.Clone(have), func(s *discoveryv1.EndpointSlice) bool {
		named := func(o *discoveryv1.EndpointSlice) bool { return o.Name == s.Name }
		return slices.ContainsFunc(p.update, named) || slices.ContainsFunc(p.remove, named)
	})
	told := func(kind, reason, message string) {
		p.events = append(p.events, event{kind, reason, message + ", addressType: " + string(family)})
	}
	hinted := slices.ContainsFunc(have, hasHints)
	switch {
	case wantsZones(st.service):
		if why := shareOut(st.nodes(), unchanged, p); why != "" {
			dropHints(unchanged, p)
			told(corev1.EventTypeWarning, "TopologyAwareHintsDisabled", why)
		} else if !hinted {
			told(corev1.EventTypeNormal, "TopologyAwareHintsEnabled", "Topology Aware Hints has been enabled")
		}
	case near(st.service):
		nodes := *st.service.Spec.TrafficDistribution == corev1.ServiceTrafficDistributionPreferSameNode
		rehint(unchanged, p, func(e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
			if !isTrue(e.Conditions.Ready) {
				return e.Hints
			}
			return nearby(e, nodes)
		})
	default:
		dropHints(unchanged, p)
		if hinted {
			told(corev1.EventTypeWarning, "TopologyAwareHintsDisabled", "Topology Aware Hints has been disabled")
		}
	}
}

// wantsZones says that the endpoints of a Service are to be shared out among zones.
func wantsZones(s *corev1.Service) bool {
	mode, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !ok {
		mode = s.Annotations[corev1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}

// near says that a Service prefers endpoints near the client.
func near(s *corev1.Service) bool {
	if s.Spec.TrafficDistribution == nil {
		return false
	}
	switch *s.Spec.TrafficDistribution {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone, corev1.ServiceTrafficDistributionPreferSameNode:
		return true
	}
	return false
}

// nearby hints at an endpoint's own zone, and with nodes at its node.
func nearby(e *discoveryv1.Endpoint, nodes bool) *discoveryv1.EndpointHints {
	var out discoveryv1.EndpointHints
	if e.Zone != nil {
		out.ForZones = []discoveryv1.ForZone{{Name: *e.Zone}}
	}
	if nodes && e.NodeName != nil {
		out.ForNodes = []discoveryv1.ForNode{{Name: *e.NodeName}}
	}
	if out.ForZones == nil && out.ForNodes == nil {
		return nil
	}
	return &out
}

// rehint gives every endpoint its hints. Unchanged slices whose hints are others join the updates.
func rehint(unchanged []*discoveryv1.EndpointSlice, p *plan, of func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints) {
	for _, s := range unchanged {
		if slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return !sameHints(e.Hints, of(&e)) }) {
			p.update = append(p.update, s.DeepCopy())
		}
	}
	for _, list := range [][]*discoveryv1.EndpointSlice{p.create, p.update} {
		for _, s := range list {
			for i := range s.Endpoints {
				s.Endpoints[i].Hints = of(&s.Endpoints[i])
			}
		}
	}
}

func dropHints(unchanged []*discoveryv1.EndpointSlice, p *plan) {
	rehint(unchanged, p, func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints { return nil })
}

func hasHints(s *discoveryv1.EndpointSlice) bool {
	return slices.ContainsFunc(s.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil })
}

func sameHints(a, b *discoveryv1.EndpointHints) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.Equal(a.ForZones, b.ForZones) && slices.Equal(a.ForNodes, b.ForNodes)
}

func isTrue(b *bool) bool { return b != nil && *b }
