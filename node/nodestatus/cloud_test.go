package nodestatus

import (
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestCloudNode checks that a node of a cloud is created with the taint of uninitialized nodes, publishes its configured
// addresses, and leaves the addresses of its status to the cloud controller manager once it has set some.
func TestCloudNode(t *testing.T) {
	configured := []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}
	own := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}, {Type: corev1.NodeInternalIP, Address: "2001:db8::7"},
		{Type: corev1.NodeHostName, Address: "a"}}
	fromCloud := []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "203.0.113.9"},
		{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	for _, x := range []struct {
		name       string
		config     Config
		had, want  []corev1.NodeAddress
		taints     int
		annotation string
	}{
		{"no cloud", Config{Name: "a", Hostname: "a", Addresses: configured}, fromCloud, own, 0, ""},
		{"new", Config{Name: "a", Hostname: "a", Addresses: configured, Cloud: true}, nil, own, 1, "192.0.2.7,2001:db8::7"},
		{"with addresses of the cloud", Config{Name: "a", Hostname: "a", Addresses: configured, Cloud: true}, fromCloud,
			fromCloud, 1, "192.0.2.7,2001:db8::7"},
		{"without a configured address", Config{Name: "a", Hostname: "a", Cloud: true}, nil, own[2:], 1, ""},
	} {
		t.Run(x.name, func(t *testing.T) {
			n := &Node{Config: x.config}
			found, err := n.addresses()
			if err != nil {
				t.Fatal(err)
			}
			o := &corev1.Node{}
			o.Annotations = map[string]string{annotationProvidedIP: "198.51.100.1"} // an outdated value
			o.Status.Addresses = x.had
			if !n.setProvidedIPs(o) || n.setProvidedIPs(o) {
				t.Error("setProvidedIPs does not report exactly the first change")
			}
			describe(o, &n.Config, &Facts{Addresses: found}, time.Unix(1, 0))
			if !reflect.DeepEqual(o.Status.Addresses, x.want) {
				t.Errorf("addresses %v, want %v", o.Status.Addresses, x.want)
			}
			if got := o.Annotations[annotationProvidedIP]; got != x.annotation {
				t.Errorf("the annotation is %q, not %q", got, x.annotation)
			}
			if got := n.taints(); len(got) != x.taints || x.taints > 0 &&
				got[0] != (corev1.Taint{Key: taintUninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule}) {
				t.Errorf("taints %v", got)
			}
		})
	}
}
