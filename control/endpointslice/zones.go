package endpointslice

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// overload is by how much the traffic to the endpoints of a zone may exceed its fair share.
const overload = 0.2

// zoneShare is how many endpoints are hinted to a zone.
type zoneShare struct {
	min, max int
	fair     float64
}

// hintByZone sets hints so that each zone gets endpoints in proportion to its CPUs, mostly its own endpoints. It returns the
// reason why that is not possible, or an empty string.
func hintByZone(nodes []*corev1.Node, unchanged []*discoveryv1.EndpointSlice, p *plan) string {
	ready := 0
	for _, list := range [][]*discoveryv1.EndpointSlice{p.create, p.update, unchanged} {
		for _, s := range list {
			for i := range s.Endpoints {
				if isTrue(s.Endpoints[i].Conditions.Ready) {
					ready++
				}
			}
		}
	}
	shares, why := zoneShares(zoneRatios(nodes), ready)
	if why != "" {
		return why
	}
	given := map[string]int{}
	update := slices.Clone(p.update)
	for _, s := range unchanged {
		if hints, fit := keptHints(s, given, shares); fit {
			for zone, n := range hints {
				given[zone] += n
			}
		} else {
			update = append(update, s.DeepCopy())
		}
	}
	open := append(slices.Clone(p.create), update...)
	for _, s := range open {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if e.Hints = nil; !isTrue(e.Conditions.Ready) {
				continue
			}
			if e.Zone == nil || *e.Zone == "" {
				return "One or more endpoints do not have a zone specified"
			}
			given[*e.Zone]++
			e.Hints = hintsForOwnZone(e, false)
		}
	}
	moveHints(open, shares, given)
	if len(given) == 0 {
		return "No hints allocated for zones"
	}
	p.update = update
	return ""
}

// zoneRatios returns each zone's part of all CPUs; nil when the zone or the CPUs of a node are not known, or there is only one
// zone.
func zoneRatios(nodes []*corev1.Node) map[string]float64 {
	cpu, total := map[string]int64{}, int64(0)
	for _, n := range nodes {
		if isControlPlane(n) || !isReady(n) {
			continue
		}
		zone, have := zoneOf(n), n.Status.Allocatable.Cpu().MilliValue()
		if zone == "" || have == 0 {
			return nil
		}
		cpu[zone] += have
		total += have
	}
	if len(cpu) < 2 {
		return nil
	}
	out := map[string]float64{}
	for zone, n := range cpu {
		out[zone] = float64(n) / float64(total)
	}
	return out
}

// isControlPlane reports whether a node is part of the control plane.
func isControlPlane(n *corev1.Node) bool {
	_, plane := n.Labels["node-role.kubernetes.io/control-plane"]
	_, master := n.Labels["node-role.kubernetes.io/master"]
	return plane || master
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// zoneShares computes the shares of n endpoints, or returns the reason why that is not possible.
func zoneShares(ratios map[string]float64, n int) (map[string]zoneShare, string) {
	if ratios == nil {
		return nil, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
	}
	if len(ratios) > n {
		return nil, fmt.Sprintf("Insufficient number of endpoints (%d endpoints, %d zones)", n, len(ratios))
	}
	out, sum := map[string]zoneShare{}, 0
	for zone, ratio := range ratios {
		fair := ratio * float64(n)
		least := int(math.Ceil(fair * (1 / (1 + overload))))
		out[zone] = zoneShare{min: least, fair: math.Max(fair, float64(least))}
		sum += least
	}
	if sum > n {
		return nil, fmt.Sprintf("Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (%d endpoints, %d zones)", n, len(ratios))
	}
	for zone, s := range out {
		s.max = s.min + n - sum
		out[zone] = s
	}
	return out, ""
}

// keptHints counts the hints of a slice by zone, and reports whether they need no change.
func keptHints(s *discoveryv1.EndpointSlice, given map[string]int, shares map[string]zoneShare) (map[string]int, bool) {
	out := map[string]int{}
	for _, e := range s.Endpoints {
		if !isTrue(e.Conditions.Ready) {
			continue
		}
		if e.Hints == nil || len(e.Hints.ForZones) == 0 {
			return nil, false
		}
		for _, z := range e.Hints.ForZones {
			out[z.Name]++
		}
	}
	for zone, n := range out {
		if s, known := shares[zone]; !known || n+given[zone] > s.max {
			return nil, false
		}
	}
	return out, true
}

// moveHints changes hints from zones that have too many endpoints to zones that have too few.
func moveHints(open []*discoveryv1.EndpointSlice, shares map[string]zoneShare, given map[string]int) {
	surplus, missing := balance(shares, given)
	for _, s := range open {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if !isTrue(e.Conditions.Ready) || surplus[*e.Zone] == 0 {
				continue
			}
			for _, zone := range slices.Sorted(maps.Keys(missing)) {
				if missing[zone] > 0 {
					e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
					surplus[*e.Zone]--
					missing[zone]--
					given[*e.Zone]--
					given[zone]++
					break
				}
			}
		}
	}
}

// balance returns how many endpoints each zone should give away, or get. It pairs the zones that are furthest from their
// fair share.
func balance(shares map[string]zoneShare, given map[string]int) (surplus, missing map[string]int) {
	over, under := map[string]float64{}, map[string]float64{}
	for zone, s := range shares {
		if diff := float64(given[zone]) - s.fair; diff > 0 {
			over[zone] = diff
		} else if diff < 0 {
			under[zone] = -diff
		}
	}
	surplus, missing = map[string]int{}, map[string]int{}
	for {
		from, give := furthest(over)
		to, take := furthest(under)
		if from == "" || to == "" || (give < 1 && take < 1) || give < 0.5 || take < 0.5 {
			return surplus, missing
		}
		surplus[from]++
		missing[to]++
		over[from]--
		under[to]--
	}
}

func furthest(zones map[string]float64) (zone string, by float64) {
	for _, z := range slices.Sorted(maps.Keys(zones)) {
		if zones[z] > by {
			zone, by = z, zones[z]
		}
	}
	return zone, by
}
