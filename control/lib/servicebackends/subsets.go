package servicebackends

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Repack brings subsets of Endpoints into their canonical form: addresses with the same ports are in one subset, each once
// and sorted. An address that is not ready for a port in one subset is not ready for it at all.
func Repack(subsets []corev1.EndpointSubset) []corev1.EndpointSubset {
	type name struct {
		ip  string
		uid types.UID
	}
	type member struct {
		address corev1.EndpointAddress
		ready   bool
	}
	byPort := map[string]map[name]member{}
	ports := map[string]*corev1.EndpointPort{} // nil for an address without ports
	for i := range subsets {
		s := &subsets[i]
		add := func(port *corev1.EndpointPort) {
			key := portText(port)
			if ports[key] = port; byPort[key] == nil {
				byPort[key] = map[name]member{}
			}
			put := func(a corev1.EndpointAddress, ready bool) {
				n := name{ip: a.IP}
				if a.TargetRef != nil {
					n.uid = a.TargetRef.UID
				}
				if have, known := byPort[key][n]; !known {
					byPort[key][n] = member{a, ready}
				} else {
					have.ready = have.ready && ready
					byPort[key][n] = have
				}
			}
			for _, a := range s.Addresses {
				put(a, true)
			}
			for _, a := range s.NotReadyAddresses {
				put(a, false)
			}
		}
		if len(s.Ports) == 0 {
			add(nil)
		}
		for j := range s.Ports {
			add(&s.Ports[j])
		}
	}
	byAddresses := map[string]*corev1.EndpointSubset{}
	for _, key := range slices.Sorted(maps.Keys(byPort)) {
		var s corev1.EndpointSubset
		for _, m := range byPort[key] {
			if m.ready {
				s.Addresses = append(s.Addresses, m.address)
			} else {
				s.NotReadyAddresses = append(s.NotReadyAddresses, m.address)
			}
		}
		slices.SortFunc(s.Addresses, compareAddresses)
		slices.SortFunc(s.NotReadyAddresses, compareAddresses)
		addresses := addressText(s.Addresses) + "|" + addressText(s.NotReadyAddresses)
		if byAddresses[addresses] == nil {
			byAddresses[addresses] = &s
		}
		if p := ports[key]; p != nil {
			byAddresses[addresses].Ports = append(byAddresses[addresses].Ports, *p)
		}
	}
	out := []corev1.EndpointSubset{}
	for _, addresses := range slices.Sorted(maps.Keys(byAddresses)) {
		out = append(out, *byAddresses[addresses])
	}
	return out
}

func compareAddresses(a, b corev1.EndpointAddress) int {
	uid := func(a corev1.EndpointAddress) types.UID {
		if a.TargetRef == nil {
			return ""
		}
		return a.TargetRef.UID
	}
	return cmp.Or(cmp.Compare(a.IP, b.IP), cmp.Compare(uid(a), uid(b)))
}

func portText(p *corev1.EndpointPort) string {
	if p == nil {
		return ""
	}
	app := "-"
	if p.AppProtocol != nil {
		app = "=" + *p.AppProtocol
	}
	return strings.Join([]string{p.Name, strconv.Itoa(int(p.Port)), string(p.Protocol), app}, " ")
}

func addressText(list []corev1.EndpointAddress) string {
	var out strings.Builder
	for _, a := range list {
		out.WriteString(a.IP + " ")
		if a.TargetRef != nil {
			out.WriteString(string(a.TargetRef.UID))
		}
		out.WriteString(",")
	}
	return out.String()
}
