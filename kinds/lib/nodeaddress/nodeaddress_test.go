package nodeaddress

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/textcase"
)

// TestCheck runs the cases of testdata/claims.txt. Each line is a write of a Node: "NAME from REMOTE stored A,B allowed C,D
// wants E,F", of which all but the name may be omitted, and after an arrow the expected result. Without "stored" the Node is
// created, and "stored -" is a Node without addresses. All cases use testCluster; the node "first" is in the server's process,
// and "first-2" is a node that the server starts.
func TestCheck(t *testing.T) {
	textcase.Play(t, "testdata/claims.txt", "== ", func(t *testing.T, body string) string {
		var out strings.Builder
		for line := range strings.Lines(body) {
			line = strings.TrimSpace(line)
			if claim, _, _ := strings.Cut(line, "=>"); line != "" && !strings.HasPrefix(line, "#") {
				line = strings.TrimSpace(claim) + " => " + checkClaim(t, strings.TrimSpace(claim))
			}
			fmt.Fprintln(&out, line)
		}
		return out.String()
	})
}

func checkClaim(t *testing.T, line string) string {
	t.Helper()
	words := strings.Fields(line)
	values := map[string]string{}
	for i := 1; i+1 < len(words); i += 2 {
		values[words[i]] = words[i+1]
	}
	claim := &Claim{Node: node(words[0], values["wants"]),
		Others: slices.Values([]*corev1.Node{node("first", "192.0.2.1,first"), node("other", "192.0.2.8,other,other.example")})}
	if text, ok := values["from"]; ok {
		claim.Remote = netip.MustParseAddr(text)
	}
	if text, ok := values["stored"]; ok {
		claim.Stored = node(words[0], strings.Trim(text, "-"))
		claim.Stored.Annotations = map[string]string{Annotation: values["allowed"]}
	}
	// An annotation that the node itself writes must not have an effect.
	claim.Node.Annotations = map[string]string{Annotation: "0.0.0.0/0,::/0,mine.example"}
	if refusal := Check(testCluster(), claim); refusal != nil {
		return refusal.Field + ": " + refusal.Error()
	}
	return "fine"
}

func node(name, addresses string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for text := range strings.SplitSeq(addresses, ",") {
		if text != "" {
			n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: text})
		}
	}
	return n
}

func testCluster() *Cluster {
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	addresses := func(texts ...string) (out []netip.Addr) {
		for _, text := range texts {
			out = append(out, netip.MustParseAddr(text))
		}
		return out
	}
	return &Cluster{
		Services: prefixes("10.96.0.0/16", "fd00:96::/112"), Pods: prefixes("10.244.0.0/16"),
		Ranges:  prefixes("198.51.100.0/24", "10.0.0.0/8"),
		Servers: addresses("192.0.2.1", "192.0.2.2"), ServingAddresses: addresses("192.0.2.1", "192.0.2.3", "127.0.0.1"),
		ServingNames: []string{"api.example", "box", "localhost"},
		Machine: func() []netip.Addr {
			return addresses("127.0.0.1", "192.0.2.1", "192.0.2.99", "10.244.0.1", "2001:db8::1")
		},
		Assigned: func(node string) []netip.Addr {
			return map[string][]netip.Addr{"first": addresses("192.0.2.1"), "first-2": addresses("10.200.0.2", "fd00:200::2"),
				"localhost": addresses("192.0.2.1")}[node]
		},
	}
}

// TestReserved checks for which addresses and names no serving certificate is approved.
func TestReserved(t *testing.T) {
	for _, address := range []string{
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "Kubernetes.Default.SVC.", "kubernetes.default.svc.cluster.local",
		"localhost", "a.localhost",
		"web.shop.svc", "anything.cluster.local", "127.0.0.1", "::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "169.254.1.2", "fe80::1",
		"fe80::1%eth0",
		"10.96.0.1", "::ffff:10.96.0.1", "10.244.3.4", "fd00:96::1", "255.255.255.255",
	} {
		if testCluster().Reserved(address) == "" {
			t.Errorf("%s is not reserved", address)
		}
	}
	for _, address := range []string{"192.0.2.7", "node-b", "b.example", "2001:db8::2", "kubernetes.example", "mysvc"} {
		if why := testCluster().Reserved(address); why != "" {
			t.Errorf("%s is reserved: %s", address, why)
		}
	}
}
