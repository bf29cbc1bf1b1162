package nodeaddress

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func nodeOfAge(name string, age int, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Time{Time: time.Unix(int64(age), 0)}}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

func TestOf(t *testing.T) {
	n := nodeOfAge("a", 0, "127.0.0.1", "::1", "169.254.169.254", "fe80::1", "224.0.0.1", "0.0.0.0", "10.96.0.1", "::ffff:10.96.0.1",
		"kubernetes.default.svc", "192.0.2.1", "2001:db8::1")
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "198.51.100.1"},
		corev1.NodeAddress{Type: corev1.NodeHostName, Address: "203.0.113.1"})
	ranges := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}
	if got := fmt.Sprint(Of(n, corev1.NodeInternalIP, ranges),
		Of(n, corev1.NodeExternalIP, ranges)); got != "[192.0.2.1 2001:db8::1] [198.51.100.1]" {
		t.Errorf("got %s", got)
	}
}

func TestOwnersAreTheOldest(t *testing.T) {
	owners := Owners([]*corev1.Node{nodeOfAge("a", 3, "192.0.2.1", "192.0.2.3"), nodeOfAge("z", 1, "192.0.2.1"),
		nodeOfAge("b", 3, "192.0.2.3")}, nil)
	for ip, want := range map[string]string{"192.0.2.1": "z", "192.0.2.3": "a"} {
		if got := owners[netip.MustParseAddr(ip)]; got != want {
			t.Errorf("%s is of %s, want %s", ip, got, want)
		}
	}
}
