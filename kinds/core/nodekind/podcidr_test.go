package nodekind

import (
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/kind/kindtest"
)

func TestPodCIDRsAreClaimed(t *testing.T) {
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
		c := kindtest.NewCluster()
		var now, old kind.Object
		if test.now != "-" {
			now = node(test.now)
		}
		if test.old != "-" {
			old = node(test.old)
		}
		if err := Nodes(Hooks{}).Begin(t.Context(), c, now, old); err != nil {
			t.Fatal(err)
		}
		short := func(keys []string) string {
			return strings.ReplaceAll(strings.Join(keys, " "), "/registry/proa/podcidrs/", "")
		}
		slices.Sort(c.Released)
		if got := short(slices.Sorted(maps.Keys(c.Claimed))); got != test.claims {
			t.Errorf("%s: claims %q, want %q", test.name, got, test.claims)
		}
		if got := short(c.Released); got != test.frees {
			t.Errorf("%s: frees %q, want %q", test.name, got, test.frees)
		}
	}
}

// TestPodCIDRMustBeAllocatable checks that a Node with a Pod network that the allocator never assigns is rejected: one outside
// the ranges of the cluster, of another size, of Services, or overlapping that of another node. Other nodes would install
// routes to it.
func TestPodCIDRMustBeAllocatable(t *testing.T) {
	hooks := Hooks{PodRanges: []PodRange{{netip.MustParsePrefix("10.244.0.0/16"), 24}, {netip.MustParsePrefix("fd00::/56"), 64}}}
	const notAllocated = "must be a network that the server allocates: a /24 of 10.244.0.0/16 or a /64 of fd00::/56; leave it out to be given one, " +
		"or start the server with --allocate-node-cidrs=false to allocate by yourself"
	for _, test := range []struct{ name, cidrs, field, why string }{
		{"a network of the allocator", "10.244.3.0/24 fd00:0:0:7::/64", "", ""},
		{"an address outside the cluster", "203.0.113.5/32", "spec.podCIDRs[0]", notAllocated},
		{"all Services", "10.96.0.0/12", "spec.podCIDRs[0]", notAllocated},
		{"half of the internet", "128.0.0.0/1", "spec.podCIDRs[0]", notAllocated},
		{"the whole range", "10.244.0.0/16", "spec.podCIDRs[0]", notAllocated},
		{"a part of a network", "10.244.3.128/25", "spec.podCIDRs[0]", notAllocated},
		{"two networks", "10.244.2.0/23", "spec.podCIDRs[0]", notAllocated},
		{"the second one", "10.244.3.0/24 fd00::/57", "spec.podCIDRs[1]", notAllocated},
		{"more than a range of the other family", "::/0", "spec.podCIDRs[0]", notAllocated},
		{"inside the network of an older cluster", "10.244.16.0/24", "spec.podCIDRs[0]",
			`overlaps 10.244.16.0/20, the network of node "old"`},
		{"cluster IPs", "10.244.99.0/24", "spec.podCIDRs[0]", "overlaps 10.244.99.0/28, which is for the cluster IPs of Services"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := kindtest.NewCluster("10.96.0.0/16", "10.244.99.0/28")
			c.Objects["nodes//old"] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "old"},
				Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.16.0/20"}}}
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDRs: strings.Fields(test.cidrs)}}
			checkInvalid(t, Nodes(hooks).Begin(t.Context(), c, n, nil), test.field, test.why)
			checkInvalid(t, Nodes(hooks).Begin(t.Context(), c, n, &corev1.Node{ObjectMeta: n.ObjectMeta}), test.field, test.why)
		})
	}
}

// TestPodCIDRsMustNotOverlap checks that without the allocator administrators may use any network that overlaps neither that
// of another node nor that of Services.
func TestPodCIDRsMustNotOverlap(t *testing.T) {
	for cidr, why := range map[string]string{
		"203.0.113.0/26": "", "10.7.0.0/16": "", "fd00:7::/48": "",
		"10.8.0.0/15":    `overlaps 10.8.1.0/24, the network of node "other"`,
		"10.8.1.128/25":  `overlaps 10.8.1.0/24, the network of node "other"`,
		"fd00:8::/48":    `overlaps fd00:8:0:1::/64, the network of node "other"`,
		"10.96.128.0/24": "overlaps 10.96.0.0/16, which is for the cluster IPs of Services",
	} {
		c := kindtest.NewCluster("10.96.0.0/16")
		for _, name := range []string{"other", "a"} { // the former network of the node itself is no conflict
			cidrs := map[string][]string{"other": {"10.8.1.0/24", "fd00:8:0:1::/64"}, "a": {"10.7.1.0/24"}}[name]
			c.Objects["nodes//"+name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: cidrs}}
		}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{PodCIDRs: []string{cidr}}}
		at := ""
		if why != "" {
			at = "spec.podCIDRs[0]"
		}
		checkInvalid(t, Nodes(Hooks{}).Begin(t.Context(), c, n, nil), at, why)
	}
}

// checkInvalid checks that an error is about one invalid field; with an empty reason there must be no error.
func checkInvalid(t *testing.T, err error, at, why string) {
	t.Helper()
	if why == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok || status.ErrStatus.Code != http.StatusUnprocessableEntity || len(status.ErrStatus.Details.Causes) != 1 {
		t.Errorf("got %v, want a refusal of %s", err, at)
		return
	}
	if c := status.ErrStatus.Details.Causes[0]; c.Field != at || !strings.HasSuffix(c.Message, ": "+why) {
		t.Errorf("got %s: %s\nwant %s: %s", c.Field, c.Message, at, why)
	}
}
