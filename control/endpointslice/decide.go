package endpointslice

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"proa.dev/control/lib/servicebackends"
	"proa.dev/control/lib/workload"
)

// state has the objects that the slices of a Service depend on.
type state struct {
	service   *corev1.Service
	pods      []*corev1.Pod                // those the Service selects
	slices    []*discoveryv1.EndpointSlice // those of this controller that are not being deleted
	nodeNamed func(name string) *corev1.Node
	allNodes  func() []*corev1.Node // called only for Services with topology-aware hints
}

// plan is what to do with the slices of a Service.
type plan struct {
	create, update, remove []*discoveryv1.EndpointSlice
	events                 []event
}

type event struct{ kind, reason, message string }

func (p *plan) empty() bool { return len(p.create)+len(p.update)+len(p.remove) == 0 }

// decide compares the slices of a Service with the endpoints they should have.
func decide(st state) plan {
	var out plan
	families := families(st.service)
	byFamily := map[discoveryv1.AddressType][]*discoveryv1.EndpointSlice{}
	for _, s := range st.slices {
		if slices.Contains(families, s.AddressType) {
			byFamily[s.AddressType] = append(byFamily[s.AddressType], s)
		} else {
			out.remove = append(out.remove, s)
		}
	}
	first := !slices.ContainsFunc(st.slices, func(s *discoveryv1.EndpointSlice) bool { return ownedBy(s, st.service) })
	var changed []*corev1.Pod
	for _, family := range families {
		p, pods := decideFamily(st, family, byFamily[family])
		out.create, out.update, out.remove = append(out.create, p.create...), append(out.update, p.update...), append(out.remove,
			p.remove...)
		out.events, changed = append(out.events, p.events...), append(changed, pods...)
	}
	if st.service.DeletionTimestamp != nil {
		out.create = nil
	}
	if out.empty() {
		out.events = nil // they were recorded before
	}
	cause := servicebackends.TriggerTime(st.service, first, changed)
	for _, list := range [][]*discoveryv1.EndpointSlice{out.create, out.update} {
		for _, s := range list {
			s.Annotations = servicebackends.AnnotateTriggerTime(s.Annotations, cause)
		}
	}
	return out
}

// families returns the address types of a Service.
func families(s *corev1.Service) (out []discoveryv1.AddressType) {
	for _, f := range s.Spec.IPFamilies {
		if t := discoveryv1.AddressType(f); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	switch { // a Service that was stored by an old server
	case len(out) > 0:
	case servicebackends.IsHeadless(s):
		out = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	case netutils.IsIPv6String(s.Spec.ClusterIP):
		out = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
	default:
		out = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
	}
	return out
}

// decideFamily decides for one address type. It also returns the pods whose endpoints are new, have become ready or unready,
// or are removed because the pod ended.
func decideFamily(st state, family discoveryv1.AddressType, have []*discoveryv1.EndpointSlice) (plan, []*corev1.Pod) {
	var out plan
	byPorts := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range have {
		if ownedBy(s, st.service) {
			key := portsKey(s.Ports)
			byPorts[key] = append(byPorts[key], s)
		} else {
			out.remove = append(out.remove, s)
		}
	}
	var changed []*corev1.Pod
	wanted := desired(st, family)
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		p, pods := placeEndpoints(st.service, wanted[key], byPorts[key])
		changed = append(changed, pods...)
		out.create, out.update, out.remove = append(out.create, p.create...), append(out.update, p.update...), append(out.remove,
			p.remove...)
	}
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		if _, ok := wanted[key]; !ok {
			out.remove = append(out.remove, byPorts[key]...)
		}
	}
	// A Service without endpoints has an empty slice, which distinguishes it from one that was not reconciled yet.
	if len(out.create) == 0 && len(out.remove) == len(have) {
		empty := newSlice(st.service, family, []discoveryv1.EndpointPort{})
		if len(have) == 1 && isEmpty(have[0], empty, st.service) {
			out.remove = nil
		} else {
			out.create = append(out.create, empty)
		}
	}
	setHints(st, family, have, &out)
	reuseSlices(st.service, &out)
	return out, append(changed, endedPods(st.pods, have)...)
}

// endedPods returns the pods that have ended, and so became unready, while they had a ready endpoint.
func endedPods(pods []*corev1.Pod, have []*discoveryv1.EndpointSlice) []*corev1.Pod {
	ready := map[string]bool{}
	for _, s := range have {
		for _, e := range s.Endpoints {
			if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready[e.TargetRef.Name] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return !ready[p.Name] || workload.IsReady(p) || !workload.IsTerminal(p)
	})
}

// newSlice returns a new slice of a Service.
func newSlice(s *corev1.Service, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, GenerateName: s.Name + "-", Labels: labels(s),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: family, Ports: ports, Endpoints: []discoveryv1.Endpoint{},
	}
}

// labels returns the labels of a Service's slices: its own, and those that name the Service and this controller.
func labels(s *corev1.Service) map[string]string {
	out := servicebackends.Labels(s)
	out[discoveryv1.LabelServiceName], out[discoveryv1.LabelManagedBy] = s.Name, Manager
	return out
}

func ownedBy(o *discoveryv1.EndpointSlice, s *corev1.Service) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.UID == s.UID && r.Kind == "Service" && r.APIVersion == "v1"
	})
}

// isEmpty reports whether a slice is the one that a Service without endpoints should have.
func isEmpty(s, empty *discoveryv1.EndpointSlice, owner *corev1.Service) bool {
	return len(s.Endpoints) == 0 && len(s.Ports) == 0 && ownedBy(s, owner) && maps.Equal(s.Labels, empty.Labels) &&
		equality.Semantic.DeepEqual(s.OwnerReferences, empty.OwnerReferences)
}

// reuseSlices turns the deletion of a slice and the creation of another into one update, so that watchers see one change.
func reuseSlices(owner *corev1.Service, p *plan) {
	p.remove = slices.DeleteFunc(p.remove, func(old *discoveryv1.EndpointSlice) bool {
		if len(p.create) == 0 || !ownedBy(old, owner) || old.AddressType != p.create[len(p.create)-1].AddressType {
			return false
		}
		next := p.create[len(p.create)-1]
		p.create = p.create[:len(p.create)-1]
		next.ObjectMeta = *old.ObjectMeta.DeepCopy()
		next.Labels = labels(owner)
		p.update = append(p.update, next)
		return true
	})
}
