package core

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

func TestNodeClaimsItsPodCIDRs(t *testing.T) {
	node := func(cidrs string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDRs: strings.Fields(cidrs)}}
	}
	for _, test := range []struct{ name, old, now, claims, frees string }{
		{"a new node with networks of both families", "-", "10.0.0.0/24 fd00::/64", "10.0.0.0/24 fd00::/64", ""},
		{"a new node without", "-", "", "", ""},
		{"a node is given one", "", "10.0.0.0/24", "10.0.0.0/24", ""},
		{"a node keeps what it has", "10.0.0.0/24", "10.0.0.0/24", "", ""},
		{"a second one is added", "10.0.0.0/24", "10.0.0.0/24 fd00::/64", "fd00::/64", ""},
		{"one is exchanged", "10.0.0.0/24", "10.0.1.0/24", "10.0.1.0/24", "10.0.0.0/24"},
		{"a node goes", "10.0.0.0/24 fd00::/64", "-", "", "10.0.0.0/24 fd00::/64"},
		{"the same network in other words", "10.0.0.0/24", "10.0.0.7/24", "", ""},
		{"the same network twice", "-", "10.0.0.0/24 10.0.0.0/24", "10.0.0.0/24", ""},
		{"what is no network", "-", "nonsense", "", ""},
	} {
		c := newCluster()
		c.claimed = map[string]string{}
		var now, old kind.Object
		if test.now != "-" {
			now = node(test.now)
		}
		if test.old != "-" {
			old = node(test.old)
		}
		if err := Nodes().Begin(t.Context(), c, now, old); err != nil {
			t.Fatal(err)
		}
		short := func(keys []string) string {
			return strings.ReplaceAll(strings.Join(keys, " "), "/registry/proa/podcidrs/", "")
		}
		slices.Sort(c.freed)
		if got := short(slices.Sorted(maps.Keys(c.claimed))); got != test.claims {
			t.Errorf("%s: claims %q, want %q", test.name, got, test.claims)
		}
		if got := short(c.freed); got != test.frees {
			t.Errorf("%s: frees %q, want %q", test.name, got, test.frees)
		}
	}
}
