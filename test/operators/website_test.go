package operators

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"proa.dev/test/images/oci"
	"proa.dev/test/upstream"
)

// websiteImage builds the manager of examples/operator/website as an image.
func websiteImage(t *testing.T, root string) string {
	t.Helper()
	dir := t.TempDir()
	program, archive := filepath.Join(dir, "manager"), filepath.Join(dir, "website.tar")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags", "grpcnotrace", "-o", program, "./website/cmd")
	cmd.Dir, cmd.Env = filepath.Join(root, "examples/operator"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the operator: %v\n%s", err, out)
	}
	tree := oci.Tree{}
	tree.Put("manager", 0o755, []byte(readFile(t, program)))
	layer, err := tree.Layer()
	if err != nil {
		t.Fatal(err)
	}
	image := oci.Image{
		Names: []string{"proa.test/website:1"}, Layers: []oci.Layer{layer},
		Process: oci.Process{User: "65532:65532", Entrypoint: []string{"/manager"}, WorkingDir: "/"},
	}
	var archived bytes.Buffer
	if err := oci.Write(&archived, image); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(archive, archived.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return archive
}

const websiteOld = `{"apiVersion":"example.com/v1beta1","kind":"Website","metadata":{"name":"shop"},"spec":{"dnsName":"shop.example.com","image":"proa.test/tool:1"}}`

// testWebsite deploys an operator as kubebuilder scaffolds it, in containers and from its own manifests, on a cluster
// with cert-manager: two managers elect a leader, and their webhooks default, validate and convert by a certificate
// that cert-manager issues and injects.
func testWebsite(t *testing.T, n *node) {
	root, err := upstream.Root()
	if err != nil {
		t.Fatal(err)
	}
	n.command(t, "images", "load", "--data-dir", n.data(), websiteImage(t, root))
	manifests := filepath.Join(root, "examples/operator/website/config/default")
	n.run(t, "", "apply", "-k", manifests)
	n.run(t, "", "rollout", "status", "deployment/website-controller-manager", "-n", "website-system", "--timeout=3m")
	n.until(t, "website-controller-manager-", "get", "lease", "website.example.com", "-n", "website-system", "-o",
		"jsonpath={.spec.holderIdentity}")
	n.until(t, "LS0t", "get", "crd", "websites.example.com", "-o", "jsonpath={.spec.conversion.webhook.clientConfig.caBundle}")
	n.until(t, "LS0t", "get", "validatingwebhookconfiguration", "website-validating-webhook-configuration", "-o",
		"jsonpath={.webhooks[0].clientConfig.caBundle}")

	// A Website is written in the old version, defaulted in the new one, and read in both.
	n.run(t, websiteOld, "apply", "-f", "-")
	if out := n.run(t, "", "get", "websites.v1.example.com", "shop", "-o",
		"jsonpath={.spec.host} {.spec.replicas}"); out != "shop.example.com 2" {
		t.Errorf("in v1 it is %q", out)
	}
	if out := n.run(t, "", "get", "websites.v1beta1.example.com", "shop", "-o",
		"jsonpath={.spec.dnsName} {.spec.servers}"); out != "shop.example.com 2" {
		t.Errorf("in v1beta1 it is %q", out)
	}
	n.until(t, "2", "get", "website", "shop", "-o", "jsonpath={.status.deployed}")
	n.run(t, "", "rollout", "status", "deployment/shop", "--timeout=2m")
	if out, err := n.try(t, "", "patch", "website", "shop", "--type=merge", "-p", `{"spec":{"host":"other.example.com"}}`); err == nil ||
		!strings.Contains(out, "spec.host cannot be changed") {
		t.Errorf("another host is answered with %v: %s", err, out)
	}

	// The leader is deleted, and the other manager takes over.
	leader, _, _ := strings.Cut(n.run(t, "", "get", "lease", "website.example.com", "-n", "website-system", "-o",
		"jsonpath={.spec.holderIdentity}"), "_")
	n.run(t, "", "delete", "pod", leader, "-n", "website-system")
	n.run(t, "", "rollout", "status", "deployment/website-controller-manager", "-n", "website-system", "--timeout=3m")
	n.run(t, "", "patch", "website", "shop", "--type=merge", "-p", `{"spec":{"replicas":1}}`)
	n.until(t, "1", "get", "deployment", "shop", "-o", "jsonpath={.spec.replicas}")

	// The finalizer keeps the Website until the manager has handled the deletion; the Deployment is deleted with it.
	n.run(t, "", "delete", "website", "shop", "--timeout=2m")
	n.until(t, "NotFound", "get", "deployment", "shop")
	n.run(t, "", "delete", "-k", manifests, "--timeout=2m")
}
