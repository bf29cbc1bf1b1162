package httpapi

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/nodeaddress"
	"proa.dev/server"
	"proa.dev/server/mutate"
)

// TestNodeAddressIsCheckedAgainstConnection checks that a Node that a node sends is checked against the address of the connection, not
// against headers.
func TestNodeAddressIsCheckedAgainstConnection(t *testing.T) {
	for _, tt := range []struct {
		remote, claims string
		code           int
	}{
		{"192.0.2.7:40000", "192.0.2.7", http.StatusCreated},
		{"[::ffff:192.0.2.7]:40000", "192.0.2.7", http.StatusCreated},
		{"[2001:db8::7]:40000", "2001:db8::7", http.StatusCreated},
		{"192.0.2.7:40000", "203.0.113.80", http.StatusForbidden}, // an address of the server's own machine
		{"@", "203.0.113.80", http.StatusForbidden},               // a peer without an address is not this process
		{"192.0.2.7:40000", "10.96.0.1", http.StatusForbidden},
	} {
		r := newRigWithAdmission(t)
		plugins, err := mutate.Plugins(nil, func() nodeaddress.Cluster {
			return nodeaddress.Cluster{Machine: func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("203.0.113.80")} }}
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Mutate = slices.DeleteFunc(plugins, func(p server.Plugin) bool { return p.DisabledByDefault })
		r.Handler.Authn = fixedUser{who: nodeUser("n1")}
		body := `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":"` + tt.claims + `"}]}}`
		req := httptest.NewRequestWithContext(t.Context(), "POST", "/api/v1/nodes", strings.NewReader(body))
		req.RemoteAddr = tt.remote
		req.Header.Set("Content-Type", "application/json")
		for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "X-Remote-Addr", "Forwarded"} {
			req.Header.Set(name, "203.0.113.80")
		}
		w := httptest.NewRecorder()
		if r.ServeHTTP(w, req); w.Code != tt.code {
			t.Errorf("%s from %s: %d %s", tt.claims, tt.remote, w.Code, w.Body)
			continue
		}
		if tt.code != http.StatusForbidden {
			continue
		}
		var status metav1.Status
		if err := json.Unmarshal(w.Body.Bytes(), &status); err != nil {
			t.Fatal(err)
		}
		if status.Details == nil || len(status.Details.Causes) != 1 || status.Details.Causes[0].Field != "status.addresses[0].address" ||
			!strings.Contains(status.Message, tt.claims) {
			t.Errorf("the answer does not tell what is refused: %+v", status)
		}
	}
}
