package gatewayplan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gw "sigs.k8s.io/gateway-api/apis/v1"
)

func testGateway(name string) *Gateway {
	g := &Gateway{Gateway: &gw.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "uid-1"}}}
	g.Spec.GatewayClassName = "proa"
	for i, p := range []gw.ProtocolType{gw.HTTPProtocolType, gw.HTTPProtocolType, gw.UDPProtocolType} {
		l := &listener{Listener: &gw.Listener{Port: int32(80 + i/2), Protocol: p}, gateway: g}
		if p == gw.UDPProtocolType {
			l.refused = Problem{"UnsupportedProtocol", ""}
		}
		g.listeners = append(g.listeners, l)
	}
	return g
}

// TestStaleSlices checks which slices are deleted: those of other servers that are not ready, and no others.
func TestStaleSlices(t *testing.T) {
	g := testGateway("a")
	slice := func(node string, change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		s := SliceFor(g, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, netip.MustParseAddr("192.0.2.1"), map[int32]int{80: 4000})
		if change != nil {
			change(s)
		}
		return s
	}
	list := []*discoveryv1.EndpointSlice{
		slice("own", nil), slice("ready", nil), slice("dead", nil),
		slice("by-hand", func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelManagedBy) }),
		slice("another-gateway", func(s *discoveryv1.EndpointSlice) { s.OwnerReferences[0].UID = "other" }),
	}
	var got []string
	for _, s := range StaleSlices(g, list, "own", func(node string) bool { return node == "ready" }) {
		got = append(got, s.Name)
	}
	if !slices.Equal(got, []string{"a-proa-dead"}) {
		t.Errorf("deleted: %v", got)
	}
}

// TestServiceForGateway checks the Service of a Gateway, and that updates keep fields that others have set.
func TestServiceForGateway(t *testing.T) {
	g := testGateway("a")
	want := ServiceFor(g)
	if len(want.Spec.Ports) != 1 || want.Spec.Ports[0].Port != 80 {
		t.Fatalf("ports: %+v", want.Spec.Ports)
	}
	have := want.DeepCopy()
	have.Annotations["set-by-user"], have.Spec.LoadBalancerSourceRanges, have.Spec.ClusterIP = "yes", []string{"192.0.2.0/24"}, "10.96.0.9"
	if next := UpdatedService(have, want); next != nil {
		t.Errorf("an unchanged Service is updated: %+v", next)
	}
	g.listeners[1].Port = 8080
	next := UpdatedService(have, ServiceFor(g))
	if next == nil || len(next.Spec.Ports) != 2 || next.Annotations["set-by-user"] != "yes" || next.Spec.ClusterIP != "10.96.0.9" ||
		len(next.Spec.LoadBalancerSourceRanges) != 1 {
		t.Errorf("with another port: %+v", next)
	}
	g.refused, g.listeners = Problem{"Invalid", ""}, nil
	if ServiceFor(g) != nil {
		t.Error("a Gateway without ports has a Service")
	}
	if name := ServiceName(testGateway(strings.Repeat("x", 250)).Gateway); len(name) > 63 {
		t.Errorf("%s is too long", name)
	}
}

// TestPlacementOf checks which addresses the status of a Gateway shows.
func TestPlacementOf(t *testing.T) {
	g := testGateway("a")
	svc := ServiceFor(g)
	svc.Spec.ClusterIP = "10.96.0.9"
	check := func(what string, want string, reason string) {
		t.Helper()
		placement := PlacementOf(g, svc)
		if strings.Join(placement.Addresses, " ") != want || placement.Problem.Reason != reason {
			t.Errorf("%s: %+v", what, placement)
		}
	}
	check("no load balancer yet", "10.96.0.9", "")
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	check("a load balancer", "192.0.2.1", "")
	g.Spec.Addresses = []gw.GatewaySpecAddress{{}, {Value: "192.0.2.7"}}
	check("a requested address that no node has", "192.0.2.1", "AddressNotUsable")
	svc.OwnerReferences = nil
	check("a Service of another owner", "", "AddressNotAssigned")
	svc = nil
	check("no Service", "", "AddressNotAssigned")
}
