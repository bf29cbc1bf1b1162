package endpoints

import (
	"maps"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	netutils "k8s.io/utils/net"

	"proa.dev/control/lib/servicebackends"
	"proa.dev/control/lib/workload"
)

const (
	// capacity bounds the addresses of Endpoints.
	capacity = 1000
	// maxPairs bounds the pairs of a pod and a port that are looked at, beyond which pods are left out as they are above the capacity.
	maxPairs = 200_000
)

// decide returns the Endpoints to store for a Service, or nil when have needs no change.
func decide(s *corev1.Service, pods []*corev1.Pod, have *corev1.Endpoints) *corev1.Endpoints {
	backends := pods
	if n := max(1, maxPairs/max(1, len(s.Spec.Ports))); len(pods) > n {
		backends = readyFirst(pods)[:n]
	}
	subsets, over := truncate(servicebackends.Repack(desired(s, backends)))
	over = over || len(backends) < len(pods)
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
	if !first && maps.Equal(have.Labels, want.Labels) &&
		have.Annotations[corev1.EndpointsOverCapacity] == want.Annotations[corev1.EndpointsOverCapacity] &&
		(equality.Semantic.DeepEqual(have.Subsets, subsets) ||
			equality.Semantic.DeepEqual(servicebackends.Repack(have.Subsets), servicebackends.Repack(subsets))) {
		return nil
	}
	want.Annotations = servicebackends.AnnotateTriggerTime(want.Annotations,
		servicebackends.TriggerTime(s, first, changedPods(pods, have, want)))
	return want
}

// readyFirst returns the pods with those that are ready first.
func readyFirst(pods []*corev1.Pod) []*corev1.Pod {
	rank := func(p *corev1.Pod) int {
		if workload.IsReady(p) {
			return 0
		}
		return 1
	}
	return slices.SortedStableFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return rank(a) - rank(b) })
}

// desired returns the addresses of a Service, with a subset for each port of each pod.
func desired(s *corev1.Service, pods []*corev1.Pod) (out []corev1.EndpointSubset) {
	for _, p := range pods {
		a, ok := address(s, p)
		if !ok || !servicebackends.HasEndpoint(p, s.Spec.PublishNotReadyAddresses) {
			continue
		}
		add := func(ports ...corev1.EndpointPort) {
			subset := corev1.EndpointSubset{Ports: ports}
			if s.Spec.PublishNotReadyAddresses || workload.IsReady(p) {
				subset.Addresses = []corev1.EndpointAddress{a}
			} else {
				subset.NotReadyAddresses = []corev1.EndpointAddress{a}
			}
			out = append(out, subset)
		}
		if len(s.Spec.Ports) == 0 && s.Spec.ClusterIP == corev1.ClusterIPNone {
			add()
		}
		numberOf := servicebackends.Ports(p)
		for i := range s.Spec.Ports {
			port := &s.Spec.Ports[i]
			if n, ok := numberOf(port); ok {
				add(corev1.EndpointPort{Name: port.Name, Port: n, Protocol: port.Protocol, AppProtocol: port.AppProtocol})
			}
		}
	}
	return out
}

// address returns the address of a pod in the first IP family of a Service.
func address(s *corev1.Service, p *corev1.Pod) (corev1.EndpointAddress, bool) {
	v6 := netutils.IsIPv6String(p.Status.PodIP)
	switch {
	case len(s.Spec.IPFamilies) > 0:
		v6 = s.Spec.IPFamilies[0] == corev1.IPv6Protocol
	case !servicebackends.IsHeadless(s):
		v6 = netutils.IsIPv6String(s.Spec.ClusterIP)
	}
	ips := servicebackends.Addresses(p, v6)
	if len(ips) == 0 {
		return corev1.EndpointAddress{}, false
	}
	return corev1.EndpointAddress{
		IP: ips[0], NodeName: new(p.Spec.NodeName), Hostname: servicebackends.Hostname(p, s),
		TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
	}, true
}

// labels returns the labels of the Endpoints: those of the Service, and the one that marks them as managed.
func labels(s *corev1.Service) map[string]string {
	out := servicebackends.Labels(s)
	out[managedBy] = manager
	return out
}

// isManaged reports whether Endpoints were created by this controller.
func isManaged(e *corev1.Endpoints) bool { return e.Labels[managedBy] == manager }

// isLock reports whether Endpoints are a lock for leader election.
func isLock(e *corev1.Endpoints) bool {
	_, is := e.Annotations[leader]
	return is
}

// truncate drops addresses above the capacity, proportionally from each subset, those that are not ready first.
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

// changedPods returns the pods that are new in the Endpoints, have become ready or unready in them, or are no longer in them
// because they ended while they were ready.
func changedPods(pods []*corev1.Pod, have, want *corev1.Endpoints) []*corev1.Pod {
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
			now = workload.IsReady(p)
		}
		return !had && !has || had && old == now
	})
}
