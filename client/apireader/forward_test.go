package apireader

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForwarder checks that requests are forwarded to the server of the kubeconfig with the credentials of its user, whatever
// credentials and impersonation headers the client sends.
func TestForwarder(t *testing.T) {
	var got *http.Request
	var body string
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		data, _ := io.ReadAll(req.Body)
		got, body = req, string(data)
	}))
	defer server.Close()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "kubeconfig")
	config := fmt.Sprintf(`
current-context: a
contexts: [{name: a, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "%s/prefix/", certificate-authority-data: %s}}]
users: [{name: u, user: {token: right, as: somebody}}]
`, server.URL, base64.StdEncoding.EncodeToString(authority))
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := Load(t.Context(), Options{Files: []string{file}})
	if err != nil {
		t.Fatal(err)
	}
	forwarder, err := r.Forwarder()
	if err != nil {
		t.Fatal(err)
	}
	address := "http://127.0.0.1:1/api/v1/pods?dryRun=All"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer wrong", "Impersonate-User": "admin", "Impersonate-Group": "system:masters", "X-Remote-User": "admin",
		"Cookie": "a=b", "X-Forwarded-For": "192.0.2.1", "Accept": "application/json",
	} {
		req.Header.Set(name, value)
	}
	resp, err := forwarder.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if got.URL.RequestURI() != "/prefix/api/v1/pods?dryRun=All" || body != "body" || got.Header.Get("Accept") != "application/json" {
		t.Errorf("the server got %s %q %v", got.URL, body, got.Header)
	}
	for name, want := range map[string]string{
		"Authorization": "Bearer right", "Impersonate-User": "somebody", "Impersonate-Group": "", "X-Remote-User": "", "Cookie": "",
		"X-Forwarded-For": "",
	} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("the server got %s: %q, not %q", name, value, want)
		}
	}
	if req.Header.Get("Authorization") != "Bearer wrong" || req.URL.Host != "127.0.0.1:1" {
		t.Error("the request of the client was changed")
	}
}
