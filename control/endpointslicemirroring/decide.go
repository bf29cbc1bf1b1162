package endpointslicemirroring

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"proa.dev/control/lib/servicebackends"
)

// maxAddresses bounds the addresses of a subset that are mirrored, and the endpoints of a slice.
const maxAddresses = 1000

// plan is what to do with the slices that mirror Endpoints.
type plan struct {
	create, update, remove []*discoveryv1.EndpointSlice
	warnings               []warning
}

type warning struct{ reason, message string }

// decide compares the slices with the Endpoints that they mirror. There is one slice for each IP family and set of ports.
func decide(e *corev1.Endpoints, have []*discoveryv1.EndpointSlice) plan {
	wanted, warnings := desired(e)
	byKey := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range have {
		key := keyOf(s)
		byKey[key] = append(byKey[key], s)
	}
	var out plan
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		want, old := wanted[key], byKey[key]
		if len(old) == 0 {
			out.create = append(out.create, want)
			continue
		}
		delete(byKey, key)
		out.remove = append(out.remove, old[1:]...)
		if !isSame(old[0], want) {
			out.update = append(out.update, replace(old[0], want))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		out.remove = append(out.remove, byKey[key]...)
	}
	// A slice to delete and one to create become one update.
	out.remove = slices.DeleteFunc(out.remove, func(old *discoveryv1.EndpointSlice) bool {
		at := slices.IndexFunc(out.create, func(s *discoveryv1.EndpointSlice) bool { return s.AddressType == old.AddressType })
		if at < 0 {
			return false
		}
		out.update = append(out.update, replace(old, out.create[at]))
		out.create = slices.Delete(out.create, at, at+1)
		return true
	})
	if e.DeletionTimestamp != nil {
		out.create = nil
	}
	if len(out.create)+len(out.update)+len(out.remove) > 0 {
		out.warnings = warnings
	}
	return out
}

// desired returns the slices that Endpoints should have, without names, and warnings about addresses that are not in them.
func desired(e *corev1.Endpoints) (map[string]*discoveryv1.EndpointSlice, []warning) {
	out := map[string]*discoveryv1.EndpointSlice{}
	invalid, skipped := 0, 0
	for _, subset := range servicebackends.Repack(e.Subsets) {
		ports := portsOf(subset.Ports)
		added := 0
		add := func(a corev1.EndpointAddress, ready bool) {
			if added >= maxAddresses {
				skipped++
				return
			}
			ip := netutils.ParseIPSloppy(a.IP)
			if ip == nil {
				invalid++
				return
			}
			added++
			family := discoveryv1.AddressTypeIPv4
			if netutils.IsIPv6(ip) {
				family = discoveryv1.AddressTypeIPv6
			}
			key := keyOf(&discoveryv1.EndpointSlice{AddressType: family, Ports: ports})
			s := out[key]
			if s == nil {
				s = newSlice(e, family, ports)
				out[key] = s
			}
			ep := discoveryv1.Endpoint{
				Addresses: []string{ip.String()}, Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				TargetRef: a.TargetRef.DeepCopy(), NodeName: a.NodeName,
			}
			if a.Hostname != "" {
				ep.Hostname = new(a.Hostname)
			}
			s.Endpoints = append(s.Endpoints, ep)
		}
		for _, a := range subset.Addresses {
			add(a, true)
		}
		for _, a := range subset.NotReadyAddresses {
			add(a, false)
		}
	}
	var warnings []warning
	if invalid > 0 {
		warnings = append(warnings, warning{"InvalidIPAddress",
			fmt.Sprintf("Skipped %d invalid IP addresses when mirroring to EndpointSlices", invalid)})
	}
	if skipped > 0 {
		warnings = append(warnings, warning{"TooManyAddressesToMirror", fmt.Sprintf("A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped", maxAddresses, skipped+invalid)})
	}
	return out, warnings
}

// newSlice returns a new slice of Endpoints, with their labels and annotations.
func newSlice(e *corev1.Endpoints, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	meta := metav1.ObjectMeta{
		Namespace: e.Namespace, GenerateName: e.Name + "-", Labels: map[string]string{}, Annotations: map[string]string{},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(e, corev1.SchemeGroupVersion.WithKind("Endpoints"))},
	}
	maps.Copy(meta.Labels, e.Labels)
	meta.Labels[discoveryv1.LabelServiceName], meta.Labels[discoveryv1.LabelManagedBy] = e.Name, manager
	maps.Copy(meta.Annotations, e.Annotations)
	delete(meta.Annotations, corev1.EndpointsLastChangeTriggerTime)
	delete(meta.Annotations, corev1.LastAppliedConfigAnnotation)
	return &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: family, Ports: ports}
}

// replace returns a copy of an old slice with the content of a new one.
func replace(old, next *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out := next.DeepCopy()
	out.ObjectMeta = *old.ObjectMeta.DeepCopy()
	out.Labels, out.Annotations, out.OwnerReferences = next.Labels, next.Annotations, next.OwnerReferences
	return out
}

func isSame(a, b *discoveryv1.EndpointSlice) bool {
	return maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) && equality.Semantic.DeepEqual(a.Endpoints, b.Endpoints)
}

func portsOf(ports []corev1.EndpointPort) []discoveryv1.EndpointPort {
	out := []discoveryv1.EndpointPort{}
	for _, p := range ports {
		out = append(out, discoveryv1.EndpointPort{Name: new(p.Name), Port: new(p.Port), Protocol: new(p.Protocol),
			AppProtocol: p.AppProtocol})
	}
	return out
}

// keyOf returns a key that is equal for slices of one IP family with the same ports in any order.
func keyOf(s *discoveryv1.EndpointSlice) string {
	var texts []string
	for _, p := range s.Ports {
		text := ""
		for _, v := range []*string{p.Name, (*string)(p.Protocol), p.AppProtocol} {
			if v == nil {
				text += "- "
			} else {
				text += "=" + *v + " "
			}
		}
		if p.Port != nil {
			text += fmt.Sprint(*p.Port)
		}
		texts = append(texts, text)
	}
	slices.Sort(texts)
	return string(s.AddressType) + "\n" + strings.Join(texts, "\n")
}
