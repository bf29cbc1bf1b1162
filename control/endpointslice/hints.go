package endpointslice

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// setHints sets the hints of the endpoints in a plan, and adds slices to the plan whose hints must change.
func setHints(st state, family discoveryv1.AddressType, have []*discoveryv1.EndpointSlice, p *plan) {
	unchanged := slices.DeleteFunc(slices.Clone(have), func(s *discoveryv1.EndpointSlice) bool {
		named := func(o *discoveryv1.EndpointSlice) bool { return o.Name == s.Name }
		return slices.ContainsFunc(p.update, named) || slices.ContainsFunc(p.remove, named)
	})
	record := func(kind, reason, message string) {
		p.events = append(p.events, event{kind, reason, message + ", addressType: " + string(family)})
	}
	hinted := slices.ContainsFunc(have, hasHints)
	switch {
	case wantsZones(st.service):
		if why := hintByZone(st.allNodes(), unchanged, p); why != "" {
			dropHints(unchanged, p)
			record(corev1.EventTypeWarning, "TopologyAwareHintsDisabled", why)
		} else if !hinted {
			record(corev1.EventTypeNormal, "TopologyAwareHintsEnabled", "Topology Aware Hints has been enabled")
		}
	case prefersClose(st.service):
		nodes := *st.service.Spec.TrafficDistribution == corev1.ServiceTrafficDistributionPreferSameNode
		replaceHints(unchanged, p, func(e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
			if !isTrue(e.Conditions.Ready) {
				return e.Hints
			}
			return hintsForOwnZone(e, nodes)
		})
	default:
		dropHints(unchanged, p)
		if hinted {
			record(corev1.EventTypeWarning, "TopologyAwareHintsDisabled", "Topology Aware Hints has been disabled")
		}
	}
}

// wantsZones reports whether a Service has topology-aware hints, which distribute its endpoints over zones.
func wantsZones(s *corev1.Service) bool {
	mode, ok := s.Annotations[corev1.DeprecatedAnnotationTopologyAwareHints]
	if !ok {
		mode = s.Annotations[corev1.AnnotationTopologyMode]
	}
	return mode == "Auto" || mode == "auto"
}

// prefersClose reports whether the traffic distribution of a Service prefers endpoints close to the client.
func prefersClose(s *corev1.Service) bool {
	if s.Spec.TrafficDistribution == nil {
		return false
	}
	switch *s.Spec.TrafficDistribution {
	case corev1.ServiceTrafficDistributionPreferClose, corev1.ServiceTrafficDistributionPreferSameZone,
		corev1.ServiceTrafficDistributionPreferSameNode:
		return true
	}
	return false
}

// hintsForOwnZone returns hints for an endpoint's own zone, and with nodes also for its node.
func hintsForOwnZone(e *discoveryv1.Endpoint, nodes bool) *discoveryv1.EndpointHints {
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

// replaceHints sets the hints of all endpoints. Unchanged slices whose hints differ are added to the updates.
func replaceHints(unchanged []*discoveryv1.EndpointSlice, p *plan, of func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints) {
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
	replaceHints(unchanged, p, func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints { return nil })
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
