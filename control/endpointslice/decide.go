package endpointslice

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"proa.dev/control/backend"
)

// state is all that the slices of a Service depend on.
type state struct {
	service *corev1.Service
	pods    []*corev1.Pod                // those it selects
	slices  []*discoveryv1.EndpointSlice // those of this loop that are not being deleted
	node    func(name string) *corev1.Node
	nodes   func() []*corev1.Node // asked only for Services that share endpoints out among zones
}

// plan is what to do about the slices of a Service.
type plan struct {
	create, update, remove []*discoveryv1.EndpointSlice
	events                 []event
}

type event struct{ kind, reason, message string }

func (p *plan) empty() bool { return len(p.create)+len(p.update)+len(p.remove) == 0 }

// decide compares the slices of a Service with what they should be.
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
		out.create, out.update, out.remove = append(out.create, p.create...), append(out.update, p.update...), append(out.remove, p.remove...)
		out.events, changed = append(out.events, p.events...), append(changed, pods...)
	}
	if st.service.DeletionTimestamp != nil {
		out.create = nil
	}
	if out.empty() {
		out.events = nil // nothing happened that was not told before
	}
	cause := backend.Cause(st.service, first, changed)
	for _, list := range [][]*discoveryv1.EndpointSlice{out.create, out.update} {
		for _, s := range list {
			s.Annotations = backend.Stamp(s.Annotations, cause)
		}
	}
	return out
}

// families are the kinds of addresses that a Service has.
func families(s *corev1.Service) (out []discoveryv1.AddressType) {
	for _, f := range s.Spec.IPFamilies {
		if t := discoveryv1.AddressType(f); !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	switch { // a Service that an old server has made
	case len(out) > 0:
	case backend.Headless(s):
		out = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6}
	case netutils.IsIPv6String(s.Spec.ClusterIP):
		out = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv6}
	default:
		out = []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4}
	}
	return out
}

// decideFamily does the work for one kind of addresses. It also returns the pods whose endpoints are new, have become able
// or unable to serve, or are gone because the pod ended.
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
		p, pods := place(st.service, wanted[key], byPorts[key])
		changed = append(changed, pods...)
		out.create, out.update, out.remove = append(out.create, p.create...), append(out.update, p.update...), append(out.remove, p.remove...)
	}
	for _, key := range slices.Sorted(maps.Keys(byPorts)) {
		if _, ok := wanted[key]; !ok {
			out.remove = append(out.remove, byPorts[key]...)
		}
	}
	// A Service without endpoints has an empty slice: that tells it from one that nobody looked at.
	if len(out.create) == 0 && len(out.remove) == len(have) {
		empty := fresh(st.service, family, []discoveryv1.EndpointPort{})
		if len(have) == 1 && isEmpty(have[0], empty, st.service) {
			out.remove = nil
		} else {
			out.create = append(out.create, empty)
		}
	}
	hint(st, family, have, &out)
	reuse(st.service, &out)
	return out, append(changed, ended(st.pods, have)...)
}

// ended are the pods that have ended, and so became unready, while they had a ready endpoint.
func ended(pods []*corev1.Pod, have []*discoveryv1.EndpointSlice) []*corev1.Pod {
	ready := map[string]bool{}
	for _, s := range have {
		for _, e := range s.Endpoints {
			if e.TargetRef != nil && e.Conditions.Ready != nil && *e.Conditions.Ready {
				ready[e.TargetRef.Name] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return !ready[p.Name] || backend.Ready(p) || p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
	})
}

// fresh is a new slice of a Service.
func fresh(s *corev1.Service, family discoveryv1.AddressType, ports []discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, GenerateName: s.Name + "-", Labels: labels(s),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, corev1.SchemeGroupVersion.WithKind("Service"))},
		},
		AddressType: family, Ports: ports, Endpoints: []discoveryv1.Endpoint{},
	}
}

// labels are those of a Service, and what says whose the slice is.
func labels(s *corev1.Service) map[string]string {
	out := maps.Clone(s.Labels)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, corev1.IsHeadlessService)
	if backend.Headless(s) {
		out[corev1.IsHeadlessService] = ""
	}
	out[discoveryv1.LabelServiceName], out[discoveryv1.LabelManagedBy] = s.Name, Manager
	return out
}

func ownedBy(o *discoveryv1.EndpointSlice, s *corev1.Service) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool {
		return r.UID == s.UID && r.Kind == "Service" && r.APIVersion == "v1"
	})
}

// isEmpty says that a slice already is the one of a Service without endpoints.
func isEmpty(s, empty *discoveryv1.EndpointSlice, owner *corev1.Service) bool {
	return len(s.Endpoints) == 0 && len(s.Ports) == 0 && ownedBy(s, owner) && maps.Equal(s.Labels, empty.Labels) &&
		equality.Semantic.DeepEqual(s.OwnerReferences, empty.OwnerReferences)
}

// reuse turns a slice to be removed and one to be made into one update: watchers see one change, and no name is spent.
func reuse(owner *corev1.Service, p *plan) {
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
