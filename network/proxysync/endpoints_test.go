package proxysync

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"proa.dev/internal/textcase"
	"proa.dev/network/httpproxy"
	"proa.dev/network/nettest"
)

// TestEndpoints checks the cases of testdata/endpoints.txt: the endpoints of the port http of the Service web.
func TestEndpoints(t *testing.T) {
	textcase.Decide(t, "testdata/endpoints.txt", "=>", func(t *testing.T, in string) string {
		t.Helper()
		var svc *corev1.Service
		var list []*discoveryv1.EndpointSlice
		for _, o := range nettest.Objects(t, in) {
			switch o := o.(type) {
			case *corev1.Service:
				svc = o
			case *discoveryv1.EndpointSlice:
				list = append(list, o)
			}
		}
		ref := httpproxy.Ref{Namespace: "default", Service: "web", Port: "http", Number: 80}
		var out strings.Builder
		for _, a := range EndpointsOf(svc, ref, list, Reachable) {
			fmt.Fprintln(&out, a)
		}
		return out.String()
	})
}

func TestReachable(t *testing.T) {
	for text, want := range map[string]bool{
		"10.0.0.1": true, "2001:db8::1": true, "127.0.0.1": false, "169.254.169.254": false, "::1": false, "0.0.0.0": false,
		"224.0.0.1": false, "fe80::1": false,
	} {
		if got := Reachable(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
