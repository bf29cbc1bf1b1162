package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestOnlyAllocatedNetworksAreStored writes networks into Nodes of a running server as an administrator. While the server
// allocates networks, it accepts only those that it could have assigned itself. Where administrators allocate them, it accepts
// all that do not overlap.
func TestOnlyAllocatedNetworksAreStored(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		byHand bool
		want   map[string]bool // whether a network is taken
	}{
		{"the server allocates", false,
			map[string]bool{"203.0.113.5/32": false, "10.96.0.0/12": false, "128.0.0.0/1": false, "10.244.200.0/25": false,
				"10.244.201.0/24": true}},
		{"administrators allocate", true,
			map[string]bool{"203.0.113.0/28": true, "172.20.0.0/14": true, "10.244.201.0/24": true, "10.96.0.0/12": false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := proatest.Start(t, proatest.Memory(), proatest.Alone(), func(c *run.Config) { c.NodeCIDRsByHand = test.byHand })
			for cidr, want := range test.want {
				n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{GenerateName: "n"}, Spec: corev1.NodeSpec{PodCIDRs: []string{cidr}}}
				if _, err := cluster.Client.Create(t.Context(), gr.Nodes, n); (err == nil) != want || !want && !apierrors.IsInvalid(err) {
					t.Errorf("%s: %v", cidr, err)
				}
			}
			// A network that overlaps another node's is rejected in any case.
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.201.0/26"}}}
			if _, err := cluster.Client.Create(t.Context(), gr.Nodes, n); !apierrors.IsInvalid(err) {
				t.Errorf("a network inside another node's: %v", err)
			}
		})
	}
}
