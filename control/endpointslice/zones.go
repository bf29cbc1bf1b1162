package endpointslice

import (
	"fmt"
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// overload is by how much more than its share the endpoints of a zone may get to do.
const overload = 0.2

// share is how many endpoints a zone should have.
type share struct {
	least, most int
	fair        float64
}

// shareOut hints endpoints at zones so that each zone has endpoints in proportion to its processors, mostly its own. It
// returns why that cannot be done, or nothing.
func shareOut(nodes []*corev1.Node, unchanged []*discoveryv1.EndpointSlice, p *plan) string {
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
	shares, why := sharesOf(ratios(nodes), ready)
	if why != "" {
		return why
	}
	given := map[string]int{}
	update := slices.Clone(p.update)
	for _, s := range unchanged {
		if hints, fit := hintsOf(s, given, shares); fit {
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
			e.Hints = nearby(e, false)
		}
	}
	move(open, shares, given)
	if len(given) == 0 {
		return "No hints allocated for zones"
	}
	p.update = update
	return ""
}

// ratios are the parts of all processors that each zone has; nil when that is not known of every node, or there is but
// one zone.
func ratios(nodes []*corev1.Node) map[string]float64 {
	cpu, total := map[string]int64{}, int64(0)
	for _, n := range nodes {
		if excluded(n) || !ready(n) {
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

// excluded says that a node serves the cluster and not its users.
func excluded(n *corev1.Node) bool {
	_, plane := n.Labels["node-role.kubernetes.io/control-plane"]
	_, master := n.Labels["node-role.kubernetes.io/master"]
	return plane || master
}

func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// sharesOf shares n endpoints out, or says why it cannot.
func sharesOf(ratios map[string]float64, n int) (map[string]share, string) {
	if ratios == nil {
		return nil, "Insufficient Node information: allocatable CPU or zone not specified on one or more nodes"
	}
	if len(ratios) > n {
		return nil, fmt.Sprintf("Insufficient number of endpoints (%d endpoints, %d zones)", n, len(ratios))
	}
	out, sum := map[string]share{}, 0
	for zone, ratio := range ratios {
		fair := ratio * float64(n)
		least := int(math.Ceil(fair * (1 / (1 + overload))))
		out[zone] = share{least: least, fair: math.Max(fair, float64(least))}
		sum += least
	}
	if sum > n {
		return nil, fmt.Sprintf("Unable to allocate minimum required endpoints to each zone without exceeding overload threshold (%d endpoints, %d zones)", n, len(ratios))
	}
	for zone, s := range out {
		s.most = s.least + n - sum
		out[zone] = s
	}
	return out, ""
}

// hintsOf counts the hints of a slice by zone, and says whether they may stay as they are.
func hintsOf(s *discoveryv1.EndpointSlice, given map[string]int, shares map[string]share) (map[string]int, bool) {
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
		if s, known := shares[zone]; !known || n+given[zone] > s.most {
			return nil, false
		}
	}
	return out, true
}

// move gives endpoints of zones that have too many to zones that have too few.
func move(open []*discoveryv1.EndpointSlice, shares map[string]share, given map[string]int) {
	giving, taking := balance(shares, given)
	for _, s := range open {
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if !isTrue(e.Conditions.Ready) || giving[*e.Zone] == 0 {
				continue
			}
			for _, zone := range slices.Sorted(maps.Keys(taking)) {
				if taking[zone] > 0 {
					e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
					giving[*e.Zone]--
					taking[zone]--
					given[*e.Zone]--
					given[zone]++
					break
				}
			}
		}
	}
}

// balance says how many endpoints each zone should give, or take. It pairs the zones that are furthest from their share.
func balance(shares map[string]share, given map[string]int) (giving, taking map[string]int) {
	over, under := map[string]float64{}, map[string]float64{}
	for zone, s := range shares {
		if diff := float64(given[zone]) - s.fair; diff > 0 {
			over[zone] = diff
		} else if diff < 0 {
			under[zone] = -diff
		}
	}
	giving, taking = map[string]int{}, map[string]int{}
	for {
		from, give := furthest(over)
		to, take := furthest(under)
		if from == "" || to == "" || (give < 1 && take < 1) || give < 0.5 || take < 0.5 {
			return giving, taking
		}
		giving[from]++
		taking[to]++
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
