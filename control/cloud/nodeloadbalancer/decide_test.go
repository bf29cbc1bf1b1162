package nodeloadbalancer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRandomServicesShareNoPort decides about random Services that want the same ports, and checks what must hold in every
// case: no port of an address is assigned twice, a Service gets all of its ports or none, no Service gets a reserved port, and
// a Service that gets none wants a port that is taken.
func TestRandomServicesShareNoPort(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 500 {
		all, nodes := randomServices(r), randomNodes(r)
		assigned := map[string]string{} // the Service of each address and port
		got := map[string]outcome{}
		for _, svc := range all {
			s := world{service: svc, nodes: nodes, claimants: nodes, others: all, reserved: []Port{{corev1.ProtocolTCP, 83, "the test"}},
				nodePorts: all}
			out := s.decide()
			got[svc.Name] = out
			for _, in := range out.status.Ingress {
				if len(in.Ports) != len(svc.Spec.Ports) {
					t.Fatalf("%s has %d of %d ports", svc.Name, len(in.Ports), len(svc.Spec.Ports))
				}
				for _, p := range in.Ports {
					at := fmt.Sprintf("%s %d/%s", in.IP, p.Port, p.Protocol)
					if other := assigned[at]; other != "" {
						t.Fatalf("%s is assigned to %s and to %s", at, other, svc.Name)
					}
					if assigned[at] = svc.Name; p.Port == 83 && p.Protocol == corev1.ProtocolTCP {
						t.Fatalf("%s has a reserved port", svc.Name)
					}
				}
			}
		}
		for _, svc := range all {
			if out := got[svc.Name]; out.pending != "" && !hasPortConflict(svc, all, got) {
				t.Fatalf("%s gets nothing (%s), but its ports are free", svc.Name, out.pending)
			}
		}
	}
}

// hasPortConflict reports whether a Service wants a port that is reserved, a node port, or assigned to an older Service.
func hasPortConflict(svc *corev1.Service, all []*corev1.Service, got map[string]outcome) bool {
	for _, p := range svc.Spec.Ports {
		if p.Port == 83 && protocol(p.Protocol) == corev1.ProtocolTCP {
			return true
		}
		for _, o := range all {
			if o != svc && slices.Contains(nodePorts(o), portKey(p.Protocol, p.Port)) {
				return true
			}
		}
	}
	return slices.ContainsFunc(all, func(o *corev1.Service) bool {
		return got[o.Name].pending == "" && compareAge(o, svc) < 0 &&
			slices.ContainsFunc(claims(svc), func(c claim) bool { return slices.Contains(claims(o), c) })
	})
}

func randomServices(r *rand.Rand) (out []*corev1.Service) {
	for i := range 1 + r.IntN(6) {
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: fmt.Sprint("s", i), UID: types.UID(fmt.Sprint(i)),
			CreationTimestamp: metav1.Unix(int64(r.IntN(3)), 0),
		}}
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		svc.Spec.IPFamilies = [][]corev1.IPFamily{{corev1.IPv4Protocol}, {corev1.IPv6Protocol},
			{corev1.IPv4Protocol, corev1.IPv6Protocol}}[r.IntN(3)]
		for _, n := range r.Perm(4)[:1+r.IntN(3)] {
			p := corev1.ServicePort{Port: int32(80 + n), Protocol: []corev1.Protocol{"", corev1.ProtocolTCP, corev1.ProtocolUDP}[r.IntN(3)]}
			if r.IntN(10) == 0 {
				p.NodePort = int32(80 + r.IntN(4)) // not possible in a cluster, but it makes conflicts likely
			}
			svc.Spec.Ports = append(svc.Spec.Ports, p)
		}
		out = append(out, svc)
	}
	return out
}

func randomNodes(r *rand.Rand) (out []*corev1.Node) {
	for i := range 1 + r.IntN(3) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprint("10.0.0.", i+1)},
			{Type: corev1.NodeInternalIP, Address: fmt.Sprint("fd00::", i+1)}}
		out = append(out, n)
	}
	return out
}
