package endpoints

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"proa.dev/control/backend"
)

// capacity is how many addresses Endpoints may have.
const capacity = 1000

// decide returns the Endpoints to store for a Service, or nil when have is as wanted.
func decide(s *corev1.Service, pods []*corev1.Pod, have *corev1.Endpoints) *corev1.Endpoints {
	subsets, over := truncate(backend.Repack(desired(s, pods)))
	want := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	first := have == nil
	if !first {
		want = have.DeepCopy()
	}
	want.Subsets, want.Labels = subsets, labels(s)
	if want.Annotations == nil {
		want.Annotations = map[string]string{}
	}
	delete(want.Annotations, corev1.EndpointsOverCapacity)
	if over {
		want.Annotations[corev1.EndpointsOverCapacity] = "truncated"
	}
	if !first && maps.Equal(have.Labels, want.Labels) && have.Annotations[corev1.EndpointsOverCapacity] == want.Annotations[corev1.EndpointsOverCapacity] &&
		(equality.Semantic.DeepEqual(have.Subsets, subsets) || equality.Semantic.DeepEqual(backend.Repack(have.Subsets), backend.Repack(subsets))) {
		return nil
	}
	want.Annotations = backend.Stamp(want.Annotations, backend.Cause(s, first, changed(pods, have, want)))
	return want
}

// desired are the addresses of a Service, each port of each pod for itself.
func desired(s *corev1.Service, pods []*corev1.Pod) (out []corev1.EndpointSubset) {
	for _, p := range pods {
		a, ok := address(s, p)
		if !ok || !backend.Listed(p, s.Spec.PublishNotReadyAddresses) {
			continue
		}
		add := func(ports ...corev1.EndpointPort) {
			subset := corev1.EndpointSubset{Ports: ports}
			if s.Spec.PublishNotReadyAddresses || backend.Ready(p) {
				subset.Addresses = []corev1.EndpointAddress{a}
			} else {
				subset.NotReadyAddresses = []corev1.EndpointAddress{a}
			}
			out = append(out, subset)
		}
		if len(s.Spec.Ports) == 0 && s.Spec.ClusterIP == corev1.ClusterIPNone {
			add()
		}
		for i := range s.Spec.Ports {
			port := &s.Spec.Ports[i]
			if n, ok := backend.Port(p, port); ok {
				add(corev1.EndpointPort{Name: port.Name, Port: n, Protocol: port.Protocol, AppProtocol: port.AppProtocol})
			}
		}
	}
	return out
}

// address is that of a pod in the first family of a Service.
func address(s *corev1.Service, p *corev1.Pod) (corev1.EndpointAddress, bool) {
	v6 := netutils.IsIPv6String(p.Status.PodIP)
	switch {
	case len(s.Spec.IPFamilies) > 0:
		v6 = s.Spec.IPFamilies[0] == corev1.IPv6Protocol
	case !backend.Headless(s):
		v6 = netutils.IsIPv6String(s.Spec.ClusterIP)
	}
	ips := backend.Addresses(p, v6)
	if len(ips) == 0 {
		return corev1.EndpointAddress{}, false
	}
	return corev1.EndpointAddress{
		IP: ips[0], NodeName: new(p.Spec.NodeName), Hostname: backend.Hostname(p, s),
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}, true
}

// labels are those of a Service, and what says whose the Endpoints are.
func labels(s *corev1.Service) map[string]string {
	out := maps.Clone(s.Labels)
	if out == nil {
		out = map[string]string{}
	}
	delete(out, corev1.IsHeadlessService)
	if backend.Headless(s) {
		out[corev1.IsHeadlessService] = ""
	}
	out[managedBy] = manager
	return out
}

// ours says that Endpoints were made by this loop.
func ours(e *corev1.Endpoints) bool { return e.Labels[managedBy] == manager }

// lock says that Endpoints are used to elect a leader.
func lock(e *corev1.Endpoints) bool {
	_, is := e.Annotations[leader]
	return is
}

// truncate drops addresses over the capacity, in proportion from each subset, those that are not ready first.
func truncate(subsets []corev1.EndpointSubset) ([]corev1.EndpointSubset, bool) {
	ready, unready := 0, 0
	for _, s := range subsets {
		ready, unready = ready+len(s.Addresses), unready+len(s.NotReadyAddresses)
	}
	if ready+unready <= capacity {
		return subsets, false
	}
	room, total := capacity-ready, unready
	if ready > capacity {
		room, total = capacity, ready
	}
	left := room
	cut := func(list []corev1.EndpointAddress) []corev1.EndpointAddress {
		n := min(left, len(list), int(math.Ceil(float64(len(list))/float64(total)*float64(room))))
		left -= n
		return list[:n:n]
	}
	for i := range subsets {
		if ready > capacity {
			subsets[i].Addresses, subsets[i].NotReadyAddresses = cut(subsets[i].Addresses), nil
		} else {
			subsets[i].NotReadyAddresses = cut(subsets[i].NotReadyAddresses)
		}
	}
	return subsets, true
}

// changed are the pods that are new in Endpoints, have become ready or unready there, or have left because they ended while
// they were ready.
func changed(pods []*corev1.Pod, have, want *corev1.Endpoints) []*corev1.Pod {
	states := func(e *corev1.Endpoints) map[string]bool {
		out := map[string]bool{}
		if e == nil {
			return out
		}
		for _, s := range e.Subsets {
			for _, a := range s.Addresses {
				if a.TargetRef != nil {
					out[a.TargetRef.Name] = true
				}
			}
			for _, a := range s.NotReadyAddresses {
				if a.TargetRef != nil {
					out[a.TargetRef.Name] = false
				}
			}
		}
		return out
	}
	was, is := states(have), states(want)
	return slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		old, had := was[p.Name]
		now, has := is[p.Name]
		if had && !has {
			now = backend.Ready(p)
		}
		return !had && !has || had && old == now
	})
}
