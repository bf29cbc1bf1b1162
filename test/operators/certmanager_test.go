package operators

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// certManagerChart creates the chart of cert-manager as its release tool does: it writes the version into Chart.yaml, and adds the
// definitions as a template.
func certManagerChart(t *testing.T, version string) string {
	t.Helper()
	deploy, chart := filepath.Join(module(t, "cert-manager", "github.com/cert-manager/cert-manager"), "deploy"), filepath.Join(t.TempDir(),
		"cert-manager")
	if err := os.CopyFS(chart, os.DirFS(filepath.Join(deploy, "charts/cert-manager"))); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(chart, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("Chart.yaml", strings.NewReplacer("v0.1.0", version, "{{IS_PRERELEASE}}",
		"false").Replace(readFile(t, filepath.Join(chart, "Chart.template.yaml"))))
	crds, err := filepath.Glob(filepath.Join(deploy, "crds", "crd-*.yaml"))
	if err != nil || len(crds) == 0 {
		t.Fatalf("no definitions in %s: %v", deploy, err)
	}
	text := "{{- if .Values.installCRDs }}\n"
	for _, path := range crds {
		text += "---\n" + readFile(t, path)
	}
	write("templates/crds.yaml", text+"\n{{- end }}\n")
	return chart
}

// cmctl runs cert-manager's own tool on the cluster, in a folder; it must succeed. The tool includes Helm.
func (n *node) cmctl(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), programs(t, "cert-manager-ctl")["cert-manager-ctl"], args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "KUBECONFIG="+n.kubeconfig, "HOME="+n.cache)
	if out, err := cmd.CombinedOutput(); err != nil {
		pods, _ := n.try(t, "", "get", "pods,jobs,events", "-A", "-o", "wide")
		t.Fatalf("cmctl %v: %v\n%s\n%s", args, err, out, pods)
	}
}

// installCertManager installs cert-manager from its chart, which cmctl reads from its working folder. A Job of the chart then sends
// a Certificate to the webhook, and cmctl waits for it.
func (n *node) installCertManager(t *testing.T) {
	t.Helper()
	n.cmctl(t, filepath.Dir(certManagerChart(t, "v1.11.5")), "x", "install", "--timeout", "6m")
}

// certificateOf returns the certificate in a Secret, and checks that it belongs to its key and is signed by its CA.
func (n *node) certificateOf(t *testing.T, secret, host string) *x509.Certificate {
	t.Helper()
	var s struct{ Data map[string][]byte }
	if err := json.Unmarshal([]byte(n.run(t, "", "get", "secret", secret, "-o", "json")), &s); err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(s.Data["tls.crt"], s.Data["tls.key"])
	if err != nil {
		t.Fatalf("the Secret %s: %v", secret, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.Data["ca.crt"])
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{DNSName: host, Roots: roots}); err != nil {
		t.Errorf("the certificate in %s is not good for %s: %v", secret, host, err)
	}
	return pair.Leaf
}

// TestCertManager installs cert-manager, has certificates issued, and checks that they are renewed by command and before they expire.
func TestCertManager(t *testing.T) {
	n := startNode(t, "cert-manager-controller", "tool")
	n.installCertManager(t)

	n.run(t, "", "apply", "-f", "testdata/certificates.yaml")
	n.run(t, "", "wait", "--for=condition=Ready", "certificate", "--all", "--timeout=3m")
	first := n.certificateOf(t, "web", "web.example.com")
	if first.Issuer.CommonName != "authority" {
		t.Errorf("it is issued by %s", first.Issuer)
	}

	n.cmctl(t, "", "renew", "web")
	n.until(t, "2 True", "get", "certificate", "web", "-o", `jsonpath={.status.revision} {.status.conditions[?(@.type=="Ready")].status}`)
	if second := n.certificateOf(t, "web", "web.example.com"); second.SerialNumber.Cmp(first.SerialNumber) == 0 {
		t.Error("the renewed certificate is the first one")
	}
	n.until(t, "3", "get", "certificate", "short", "-o", "jsonpath={.status.revision}")
	n.certificateOf(t, "short", "short.example.com")

	// Its webhook, whose CA cainjector has written into the configuration, rejects invalid objects.
	const bad = `{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":"bad"},"spec":{"secretName":"bad","dnsNames":["a.example.com"],"duration":"1m","issuerRef":{"name":"self"}}}`
	if out, err := n.try(t, bad, "create", "-f", "-"); err == nil ||
		!strings.Contains(out, `admission webhook "webhook.cert-manager.io" denied the request`) {
		t.Errorf("a Certificate for a minute is answered with %v: %s", err, out)
	}
	bundle := n.run(t, "", "get", "validatingwebhookconfiguration", "cert-manager-webhook", "-o",
		"jsonpath={.webhooks[0].clientConfig.caBundle}")
	if pem, err := base64.StdEncoding.DecodeString(bundle); err != nil || !strings.HasPrefix(string(pem), "-----BEGIN CERTIFICATE-----") {
		t.Errorf("the CA of the webhook is %q: %v", bundle, err)
	}
	n.run(t, "", "delete", "-f", "testdata/certificates.yaml")
	t.Run("website", func(t *testing.T) { testWebsite(t, n) })
	n.cmctl(t, "", "x", "uninstall")
}
