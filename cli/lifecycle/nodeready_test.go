package lifecycle

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/cli/localcluster"
)

// accessTo returns the administrator's access to a test server.
func accessTo(t *testing.T, server *httptest.Server) *localcluster.Access {
	t.Helper()
	cert := server.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})
	text, err := json.Marshal(map[string]any{
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": server.URL,
			"certificate-authority-data": certPEM}}},
		"users": []any{map[string]any{"name": "u", "user": map[string]any{"client-certificate-data": certPEM,
			"client-key-data": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := localcluster.Cluster{Dir: t.TempDir()}
	if err := os.WriteFile(c.Kubeconfig(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := c.Access()
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestNodeReadySinceThisStart checks that the status and the Lease that a node has left in the store at its last run do not make it ready.
func TestNodeReadySinceThisStart(t *testing.T) {
	begin := time.Date(2026, 11, 18, 14, 0, 7, 600_000_000, time.UTC)
	after, before := begin.Add(300*time.Millisecond), begin.Add(-30*time.Second)
	for _, c := range []struct {
		name            string
		status          corev1.ConditionStatus
		reported, lease time.Time
		since           time.Time
		want            string // empty if it is ready
	}{
		{"ready", corev1.ConditionTrue, after, after, begin, ""},
		{"a stale status and a stale Lease", corev1.ConditionTrue, before, before, begin, "it has not reported its status since this start"},
		{"a stale status while the agent waits for its runtime", corev1.ConditionTrue, before, after, begin, "it has not reported its status since this start"},
		{"a status of the same second and a stale Lease", corev1.ConditionTrue, begin.Add(-200 * time.Millisecond), begin.Add(-time.Millisecond), begin, "has not renewed its Lease"},
		{"no Lease", corev1.ConditionTrue, after, time.Time{}, begin, "has not renewed its Lease"},
		{"not ready", corev1.ConditionFalse, after, after, begin, "the runtime is down"},
		{"an agent that has run on", corev1.ConditionTrue, before, before, time.Time{}, ""},
	} {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: c.status, Message: "the runtime is down",
				LastHeartbeatTime: metav1.NewTime(c.reported)}
			var answer any = &corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}
			if strings.Contains(r.URL.Path, "/leases/") {
				if c.lease.IsZero() {
					http.NotFound(w, r)
					return
				}
				answer = &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NewMicroTime(c.lease))}}
			}
			_ = json.NewEncoder(w).Encode(answer)
		}))
		err := nodeReady(t.Context(), accessTo(t, server), "a", c.since)
		server.Close()
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
