package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestGateway reaches containers through Gateways, from the installation of the definitions of the Gateway API until their removal.
func TestGateway(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Skipf("the definitions of the Gateway API come from its module, which is not here: %v", err)
	}
	m := newMachine(t, bins, "--ingress-class", "off")
	m.up()
	m.load(archives(t, "tool"))
	crt, key := ownCertificate(t, "tls.example.com")
	env := map[string]string{"CRT": crt, "KEY": key,
		"DEFINITIONS": filepath.Join(strings.TrimSpace(string(dir)), "config", "crd", "standard")}
	for _, path := range scripts(t, "testdata/gateway") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { m.script(t, path, env).run() })
	}
}
