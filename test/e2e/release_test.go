package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRelease copies the released file alone into a folder, starts a cluster with a Pod that answers, and purges it. "make
// release-check" builds the file first.
func TestRelease(t *testing.T) {
	release := os.Getenv("PROA_RELEASE")
	if release == "" {
		t.Skip("PROA_RELEASE is the path of a release; \"make release-check\" makes one")
	}
	if os.Geteuid() != 0 {
		t.Skip("a node with containers needs root; run the tests as root")
	}
	alone := filepath.Join(t.TempDir(), "proa")
	if err := os.Link(release, alone); err != nil {
		if err := os.Chmod(copyFile(t, release, alone), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	m := newMachine(t, programs{"proa": alone})
	proa := func(args ...string) string {
		t.Helper()
		out, err := m.run(t.Context(), "proa", args...)
		if err != nil {
			t.Fatalf("proa %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	kubectl := func(args ...string) string {
		t.Helper()
		return proa(append([]string{"kubectl", "--data-dir", m.data()}, args...)...)
	}
	m.up()
	m.load(archives(t, "tool"))
	m.must(os.WriteFile(filepath.Join(m.dir, "web.yaml"), []byte(webPod), 0o600))
	kubectl("apply", "-f", filepath.Join(m.dir, "web.yaml"))
	kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=90s")
	ip := kubectl("get", "pod", "web", "-o", "jsonpath={.status.podIP}")
	for deadline := time.Now().Add(waitLimit); !ask(ip); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the Pod at %s does not answer", ip)
		}
	}
	proa("status", "--data-dir", m.data())
	proa("down", "--purge", "--now", "--data-dir", m.data())
	if _, err := os.Stat(m.data()); !os.IsNotExist(err) {
		t.Errorf("the data folder is left: %v", err)
	}
	left := m.traces()
	for deadline := time.Now().Add(waitLimit); len(left) > 0 && time.Now().Before(deadline); left = m.traces() {
		time.Sleep(200 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("down --purge has left\n%s", strings.Join(left, "\n"))
	}
}
