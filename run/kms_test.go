package run_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/store"
	"proa.dev/store/kms/kmstest"
)

// TestKMS encrypts the Secrets of a cluster with a key management service, restarts the cluster, and rotates the key.
func TestKMS(t *testing.T) {
	t.Parallel()
	service, dir := kmstest.Start(t), t.TempDir()
	file := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - kms: {apiVersion: v2, name: vault, endpoint: "unix://%s", timeout: 5s}
  - identity: {}
`, service.Path), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func() *proatest.Cluster {
		return proatest.Start(t, proatest.InDir(dir), func(c *run.Config) { c.Encryption = file })
	}
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Data: map[string][]byte{"password": []byte("swordfish")}}
	}
	c := start()
	if _, err := c.Client.Create(t.Context(), gr.Secrets, secret("a")); err != nil {
		t.Fatal(err)
	}
	if code, body := getPath(t, c, "/readyz/kms-providers"); code != http.StatusOK {
		t.Errorf("the check says %d %s", code, body)
	}
	if _, body := getPath(t, c, "/metrics"); !bytes.Contains(body, []byte(`kms_operations_latency_seconds_count{grpc_status_code="OK",method_name="/v2.KeyManagementService/Encrypt",provider_name="vault"} 1`)) {
		t.Error("the calls are not counted")
	}
	c.Stop()
	service.Rotate(t, "two")
	c = start()
	got, err := c.Client.Get(t.Context(), gr.Secrets, "default", "a", "")
	if err != nil || string(got.(*corev1.Secret).Data["password"]) != "swordfish" {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := c.Client.Create(t.Context(), gr.Secrets, secret("b")); err != nil {
		t.Fatal(err)
	}
	// An update without a change encrypts the Secret with the new key.
	if _, err := c.Client.Update(t.Context(), gr.Secrets, got, ""); err != nil {
		t.Fatal(err)
	}
	c.Stop()

	raw, err := store.Embed(context.WithoutCancel(t.Context()),
		store.Config{Dir: filepath.Join(dir, "etcd"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	for _, name := range []string{"a", "b"} {
		p, found, err := raw.Get(t.Context(), "/registry/secrets/default/"+name)
		if err != nil || !found || !bytes.HasPrefix(p.Value, []byte("k8s:enc:kms:v2:vault:")) ||
			bytes.Contains(p.Value, []byte("swordfish")) || !bytes.Contains(p.Value, []byte("two")) {
			t.Errorf("%s is stored as %q, %v", name, p.Value, err)
		}
	}
}

// getPath reads a path as the administrator.
func getPath(t *testing.T, c *proatest.Cluster, path string) (int, []byte) {
	t.Helper()
	client, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, c.Config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}
