package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"proa.dev/test/program"
)

// example is a minimal object of a kind, from the corpus of test/compat.
type example struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Metadata   map[string]any `json:"metadata"`
	object     map[string]any
	plural     string
	verbs      []string
}

// quietControllers lists the controllers that leave an object alone once it exists, so that nothing changes it before the test
// does.
const quietControllers = "service-account-controller,root-ca-cert-publisher,namespace-controller,clusterrole-aggregation-controller," +
	"pv-protection-controller,volumeattributesclass-protection-controller,crd-finalizer"

// TestEveryKind runs the usual kubectl commands on an object of each kind, with both kubectls.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	bins := build(t)
	kubeconfig := start(t, bins, "--controllers", quietControllers)
	for which, kubectl := range []string{"kubectl", "kubectl-old"} {
		t.Run(kubectl, func(t *testing.T) {
			s := newScript(t, "", programs{"kubectl": bins[kubectl]})
			s.setenv("KUBECONFIG", copyFile(t, kubeconfig, filepath.Join(s.work, "kubeconfig")))
			s.must("kubectl", "create", "namespace", kubectl)
			s.must("kubectl", "config", "set-context", "--current", "--namespace="+kubectl)
			// The kinds share the home folder, as one user's commands do, and with it kubectl's cache of discovery.
			kindScript := func(t *testing.T) *script {
				one := newScript(t, "", s.bins)
				one.setenv("KUBECONFIG", s.env["KUBECONFIG"])
				one.setenv("HOME", s.env["HOME"])
				return one
			}
			all := served(t, s, examples(t, kubectl))
			s.checkResources(all)
			for _, e := range all {
				if !isStored(e) {
					t.Run(e.plural+" are asked", func(t *testing.T) { kindScript(t).createReview(e) })
				}
			}
			for i, e := range all {
				if !isStored(e) {
					continue
				}
				t.Run(e.plural+"."+strings.ReplaceAll(e.APIVersion, "/", "."), func(t *testing.T) {
					t.Parallel()
					kindScript(t).kind(e, which*100+i)
				})
			}
		})
	}
}

// isStored reports whether objects of a kind are stored. The others, such as reviews, can only be created.
func isStored(e *example) bool { return slices.Contains(e.verbs, "list") }

// examples reads the corpus.
func examples(t *testing.T, namespace string) (out []*example) {
	t.Helper()
	data, err := os.ReadFile("../compat/corpus/minimal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	pems := certificates(t)
	for i, doc := range strings.Split(string(data), "\n---\n") {
		n := fmt.Sprint(100 + i)
		if namespace != "kubectl" {
			n = fmt.Sprint(10 + i)
		}
		object, err := yaml.YAMLToJSON([]byte(doc))
		if err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		// The placeholders are inside JSON strings.
		text := strings.NewReplacer(append(pems, "$NAMESPACE", namespace, "$NAME", "obj"+n, "$KIND", "Obj"+n, "$N",
			n)...).Replace(string(object))
		e := new(example)
		if err := errors.Join(json.Unmarshal([]byte(text), e), json.Unmarshal([]byte(text), &e.object)); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		out = append(out, e)
	}
	return out
}

// served returns the examples whose resources are served and can be created, and sets their resource names and verbs.
func served(t *testing.T, s *script, all []*example) (out []*example) {
	t.Helper()
	type resource struct {
		Name, Kind string
		Verbs      []string
	}
	resources := map[string][]resource{}
	for _, e := range all {
		if _, ok := resources[e.APIVersion]; ok {
			continue
		}
		path := "/apis/" + e.APIVersion
		if !strings.Contains(e.APIVersion, "/") {
			path = "/api/" + e.APIVersion
		}
		if err := s.exec([]string{"kubectl", "get", "--raw", path}, false); err != nil {
			resources[e.APIVersion] = nil // an alpha or beta version that is not enabled
			continue
		}
		var list struct{ Resources []resource }
		if err := json.Unmarshal([]byte(s.stdout), &list); err != nil {
			t.Fatal(err)
		}
		resources[e.APIVersion] = list.Resources
	}
	for _, e := range all {
		for _, r := range resources[e.APIVersion] {
			if r.Kind == e.Kind && slices.Contains(r.Verbs, "create") && !strings.Contains(r.Name, "/") {
				e.plural, e.verbs = r.Name, r.Verbs
				out = append(out, e)
			}
		}
	}
	if len(out) < 50 {
		t.Fatalf("only %d kinds of the corpus are served", len(out))
	}
	return out
}

// full returns the name of the resource with version and group, as kubectl takes it.
func (e *example) full() string {
	group, version, grouped := strings.Cut(e.APIVersion, "/")
	if !grouped {
		return e.plural
	}
	return e.plural + "." + version + "." + group
}

// file writes the object with other metadata into a file.
func (e *example) file(s *script, name string, meta map[string]any) string {
	s.t.Helper()
	e.object["metadata"] = meta
	data, err := json.Marshal(e.object)
	if err != nil {
		s.t.Fatal(err)
	}
	path := filepath.Join(s.work, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// checkResources checks that api-resources know the kinds.
func (s *script) checkResources(all []*example) {
	s.t.Helper()
	s.must("kubectl", "api-resources", "-o", "name")
	shown := strings.Fields(s.stdout)
	for _, e := range all {
		name := e.plural
		if group, _, grouped := strings.Cut(e.APIVersion, "/"); grouped {
			name += "." + group
		}
		if !slices.Contains(shown, name) {
			s.t.Errorf("api-resources do not show %s:\n%s", name, s.stdout)
		}
	}
}

// checkDiscovery checks that explain knows the kind, and that the user may create it.
func (s *script) checkDiscovery(e *example) {
	s.t.Helper()
	s.must("kubectl", "explain", e.plural, "--recursive", "--api-version="+e.APIVersion)
	if !strings.Contains(s.stdout, e.Kind) {
		s.t.Fatalf("explain does not name %s:\n%s", e.Kind, s.stdout)
	}
	s.must("kubectl", "auth", "can-i", "create", e.full())
}

// createReview creates an object that is not stored. A Binding fails because its Pod does not exist.
func (s *script) createReview(e *example) {
	s.t.Helper()
	s.checkDiscovery(e)
	file := e.file(s, "object.json", e.Metadata)
	if e.Kind == "Binding" {
		if err := s.exec([]string{"kubectl", "create", "-f", file}, true); err != nil || !strings.Contains(s.stderr, "not found") {
			s.t.Fatalf("a binding of nothing: %v\n%s%s", err, s.stdout, s.stderr)
		}
		return
	}
	s.must("kubectl", "create", "-f", file, "-o", "yaml")
	if !strings.Contains(s.stdout, "status:") {
		s.t.Fatalf("no answer:\n%s", s.stdout)
	}
}

// kind creates, reads, changes and deletes an object while a watch runs.
func (s *script) kind(e *example, i int) {
	s.t.Helper()
	name, kept := e.Metadata["name"].(string)
	if !kept {
		name = fmt.Sprintf("e2e-%d", i)
	}
	typ := e.full()
	ref := typ + "/" + name
	changed := e.file(s, "changed.json", map[string]any{"name": name, "labels": map[string]any{"applied": "later"}})
	file := e.file(s, "object.json", map[string]any{"name": name})
	s.checkDiscovery(e)
	s.must("kubectl", "create", "-f", file, "--dry-run=server")
	s.must("kubectl", "create", "--save-config", "-f", file)
	if err := s.begin([]string{"kubectl", "get", ref, "-w", "--output-watch-events", "-o", `jsonpath={.type} {.object.metadata.name} {.object.metadata.labels.a}{"\n"}`}); err != nil {
		s.t.Fatal(err)
	}
	s.awaitWatchOutput("ADDED " + name + " ")
	s.read(e, ref, name, i >= 100)
	s.must("kubectl", "wait", "--for=jsonpath={.metadata.name}="+name, ref, "--timeout=60s")
	s.must("kubectl", "auth", "can-i", "update", typ)
	s.must("kubectl", "diff", "-f", file)
	if err := s.exec([]string{"kubectl", "diff", "-f", changed}, true); err != nil || !strings.Contains(s.stdout, "+    applied: later") {
		s.t.Fatalf("diff of a label: %v\n%s%s", err, s.stdout, s.stderr)
	}
	s.must("kubectl", "apply", "-f", changed)
	s.must("kubectl", "apply", "-f", file)
	s.must("kubectl", "get", ref, "-o", "jsonpath={.metadata.labels.applied}")
	if s.stdout != "" {
		s.t.Fatalf("apply has left the label %q", s.stdout)
	}
	if e.Kind == "ServiceAccount" {
		if s.must("kubectl", "create", "token", name); !strings.HasPrefix(s.stdout, "ey") {
			s.t.Fatalf("no token: %s", s.stdout)
		}
	}
	s.change(e, ref)
	s.awaitWatchOutput("MODIFIED " + name + " b")
	s.must("kubectl", "apply", "--server-side", "--force-conflicts", "-f", file)
	s.must("kubectl", "get", ref, "-o", "json")
	stored := filepath.Join(s.work, "stored.json")
	if err := os.WriteFile(stored, []byte(s.stdout), 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.must("kubectl", "replace", "-f", stored)
	s.must("kubectl", "get", typ, "-l", "a=b", "-o", "name")
	s.must("kubectl", "delete", ref, "--grace-period=0", "--force", "--wait=false")
	if e.Kind != "Namespace" && e.Kind != "PersistentVolume" && e.Kind != "PersistentVolumeClaim" {
		s.must("kubectl", "wait", "--for=delete", ref, "--timeout=60s")
		s.awaitWatchOutput("DELETED " + name + " b")
	}
	if err := s.end(true); err != nil {
		s.t.Fatal(err)
	}
}

// awaitWatchOutput waits until the watch has printed a text.
func (s *script) awaitWatchOutput(line string) {
	s.t.Helper()
	err := s.until(func() error {
		if out := s.back.out.String(); !slices.Contains(strings.Split(out, "\n"), line) {
			return fmt.Errorf("get -w has not shown %q but\n%s%s", line, out, s.back.errOut.String())
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// read prints the object in all output formats.
func (s *script) read(e *example, ref, name string, old bool) {
	s.t.Helper()
	for _, o := range []string{"wide", "yaml", "json", "custom-columns=NAME:.metadata.name,UID:.metadata.uid"} {
		s.must("kubectl", "get", ref, "-o", o)
		if !strings.Contains(s.stdout, name) {
			s.t.Fatalf("get -o %s does not show %s:\n%s", o, name, s.stdout)
		}
	}
	// kubectl 1.33 describes this class by a beta version that 1.37 no longer serves; upstream answers it the same.
	if !old || e.Kind != "VolumeAttributesClass" {
		s.must("kubectl", "describe", ref)
		if !strings.Contains(s.stdout, name) {
			s.t.Fatalf("describe does not show %s:\n%s", name, s.stdout)
		}
	}
}

// change changes the object in all ways in which single fields are changed.
func (s *script) change(e *example, ref string) {
	s.t.Helper()
	editor := filepath.Join(s.work, "edit.sh")
	if err := program.Write(editor, []byte("#!/bin/sh\nsed -i 's/note: [a-z]*/note: edited/' \"$1\"\n")); err != nil {
		s.t.Fatal(err)
	}
	s.setenv("EDITOR", editor)
	s.must("kubectl", "label", ref, "a=b")
	s.must("kubectl", "annotate", ref, "note=written")
	s.must("kubectl", "edit", ref)
	if e.Kind != "APIService" && e.Kind != "CustomResourceDefinition" { // upstream cannot merge this either
		s.must("kubectl", "patch", ref, "--type=strategic", "-p", `{"metadata":{"labels":{"p":"strategic"}}}`)
	}
	s.must("kubectl", "patch", ref, "--type=merge", "-p", `{"metadata":{"labels":{"p":"merge"}}}`)
	s.must("kubectl", "patch", ref, "--type=json", "-p", `[{"op":"replace","path":"/metadata/labels/p","value":"json"}]`)
	s.must("kubectl", "get", ref, "-o", "jsonpath={.metadata.labels.p} {.metadata.annotations.note}")
	if s.stdout != "json edited" {
		s.t.Fatalf("after the patches and the edit: %q", s.stdout)
	}
}

// certificates returns the values of the placeholders for certificates and requests in the corpus.
func certificates(t *testing.T) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "someone"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	stub, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "e2e"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := func(kind string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}) }
	return []string{
		"$CSR", base64.StdEncoding.EncodeToString(text("CERTIFICATE REQUEST", request)),
		"$STUB", base64.StdEncoding.EncodeToString(stub),
		"$CERTIFICATE", strings.ReplaceAll(string(text("CERTIFICATE", cert)), "\n", `\n`),
	}
}
