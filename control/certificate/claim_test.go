package certificate

import (
	"slices"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestRequestOlderThanNodeIsNotRenewed checks that a request from before a Node was registered does not get a certificate
// for that Node: the requestor may have an older certificate for the name.
func TestRequestOlderThanNodeIsNotRenewed(t *testing.T) {
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) metav1.ObjectMeta {
		return metav1.ObjectMeta{Name: "a", CreationTimestamp: metav1.NewTime(now.Add(d))}
	}
	for _, tt := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"no Node", nil, reasonNodeMissing},
		{"a Node that was registered later", &corev1.Node{ObjectMeta: at(time.Second)}, reasonNodeMissing},
		{"a Node that was registered before", &corev1.Node{ObjectMeta: at(-time.Second)}, ""},
		{"a Node of the same second", &corev1.Node{ObjectMeta: at(0)}, ""},
	} {
		c := nameClaim{
			request: &certificatesv1.CertificateSigningRequest{ObjectMeta: at(0)}, name: "a", renewal: true, node: tt.node, now: now,
			others: slices.Values([]*certificatesv1.CertificateSigningRequest(nil)),
		}
		if got := c.decide(); got.reason != tt.want || got.approved != (tt.want == "") {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
