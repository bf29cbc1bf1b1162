package endpointslicemirroring

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWarnsAboutSkippedAddresses(t *testing.T) {
	e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	s := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Port: 80, Protocol: corev1.ProtocolTCP}}}
	for i := range 998 {
		s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: fmt.Sprintf("10.0.%d.%d", i/250, i%250)})
	}
	s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: "fd00::1"}, corev1.EndpointAddress{IP: "nowhere"})
	s.NotReadyAddresses = []corev1.EndpointAddress{{IP: "10.1.0.1"}, {IP: "10.1.0.2"}, {IP: "10.1.0.3"}}
	e.Subsets = []corev1.EndpointSubset{s}
	p := decide(e, nil)
	counts := map[discoveryv1.AddressType]int{}
	for _, s := range p.create {
		counts[s.AddressType] += len(s.Endpoints)
	}
	if len(p.create) != 2 || counts[discoveryv1.AddressTypeIPv4] != 999 || counts[discoveryv1.AddressTypeIPv6] != 1 {
		t.Errorf("%d slices with %v", len(p.create), counts)
	}
	want := []warning{
		{"InvalidIPAddress", "Skipped 1 invalid IP addresses when mirroring to EndpointSlices"},
		{"TooManyAddressesToMirror", "A max of 1000 addresses can be mirrored to EndpointSlices per Endpoints subset. 3 addresses were skipped"},
	}
	if len(p.warnings) != 2 || p.warnings[0] != want[0] || p.warnings[1] != want[1] {
		t.Errorf("warnings %q", p.warnings)
	}
	if again := decide(e, p.create); len(again.create)+len(again.update)+len(again.remove)+len(again.warnings) > 0 {
		t.Errorf("the same again: %+v", again)
	}
}
