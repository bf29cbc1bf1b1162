package userkubeconfig

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const admin = `apiVersion: v1
kind: Config
clusters:
- name: proa
  cluster: {certificate-authority-data: b3Vycw==, server: "https://127.0.0.1:6443"}
users:
- name: proa-admin
  user: {token: abc}
contexts:
- name: proa
  context: {cluster: proa, user: proa-admin}
current-context: proa
`

// userConfig is a kubeconfig of a user, with fields that proa does not know.
const userConfig = `apiVersion: v1
kind: Config
# keep me
preferences: {colors: true}
clusters:
  - name: work
    cluster: {server: "https://192.0.2.1", proxy-url: "http://proxy"}
users:
  - name: me
    user:
      exec: {command: login, apiVersion: client.authentication.k8s.io/v1}
contexts:
  - name: work
    context: {cluster: work, user: me}
current-context: work
`

func TestMergeAndUnmerge(t *testing.T) {
	for _, user := range []string{"", "{}", userConfig, "apiVersion: v1\nkind: Config\nclusters: null\ncontexts: []\n"} {
		merged, err := Merge([]byte(admin), []byte(user))
		if err != nil {
			t.Fatalf("merge into %q: %v", user, err)
		}
		for _, want := range []string{"name: proa\n", "name: proa-admin\n", "current-context: proa\n", "kind: Config\n"} {
			if !strings.Contains(string(merged), want) {
				t.Errorf("merged into %q, %q is missing:\n%s", user, want, merged)
			}
		}
		again, err := Merge([]byte(admin), merged)
		if err != nil || string(again) != string(merged) {
			t.Errorf("merging twice changes something: %v\n%s", err, again)
		}
		back, found, err := Unmerge([]byte(admin), merged, CurrentContext([]byte(admin), []byte(user)))
		if err != nil || !found || strings.Contains(string(back), "proa") {
			t.Errorf("after taking it out again (%v, %v):\n%s", found, err, back)
		}
		if user == userConfig {
			for _, want := range []string{"# keep me", "colors: true", "proxy-url", "name: work", "command: login",
				"current-context: work\n"} {
				if !strings.Contains(string(back), want) {
					t.Errorf("%q was lost:\n%s", want, back)
				}
			}
			if out, _, err := Unmerge([]byte(admin), merged, "a context that does not exist"); err != nil ||
				!strings.Contains(string(out), `current-context: ""`) {
				t.Errorf("a context that does not exist was made current (%v):\n%s", err, out)
			}
		}
	}
}

// TestForeignContext checks that a context of the same name that belongs to another cluster is not changed.
func TestForeignContext(t *testing.T) {
	foreign := strings.NewReplacer("b3Vycw==", "dGhlaXJz", "127.0.0.1", "192.0.2.9").Replace(admin)
	if _, err := Merge([]byte(admin), []byte(foreign)); !errors.Is(err, ErrForeignContext) {
		t.Errorf("got %v", err)
	}
	if back, found, err := Unmerge([]byte(admin), []byte(foreign), ""); found || err != nil || string(back) != foreign {
		t.Errorf("it was taken out: %v %v\n%s", found, err, back)
	}
	// The same address with another CA is a cluster that was created again.
	recreated := strings.Replace(admin, "b3Vycw==", "dGhlaXJz", 1)
	if _, err := Merge([]byte(admin), []byte(recreated)); err != nil {
		t.Errorf("a cluster made anew is not merged: %v", err)
	}
}

func FuzzMergeKubeconfig(f *testing.F) {
	f.Add([]byte(userConfig))
	f.Add([]byte("clusters: &a [*a]"))
	f.Add([]byte("contexts: {name: proa}"))
	f.Fuzz(func(t *testing.T, user []byte) {
		merged, err := Merge([]byte(admin), user)
		if err != nil {
			return
		}
		if _, found, err := Unmerge([]byte(admin), merged, ""); !found || err != nil {
			t.Errorf("what was merged is not found: %v\n%s", err, merged)
		}
	})
}

// TestCopyOfOriginal checks that the copy beside the user's kubeconfig is what was there before the first cluster, never has an entry of a
// cluster that is removed, and goes when the kubeconfig is again what it was.
func TestCopyOfOriginal(t *testing.T) {
	second := strings.NewReplacer("proa", "two", "b3Vycw==", "dHdv", "6443", "6444", "abc", "def").Replace(admin)
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte(userConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	up := func(cluster string) {
		t.Helper()
		if err := Edit(path, func(old []byte) ([]byte, error) {
			merged, err := Merge([]byte(cluster), old)
			if err == nil {
				err = KeepOriginal(path, []byte(cluster), old)
			}
			return merged, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	down := func(cluster string) {
		t.Helper()
		if err := Edit(path, func(old []byte) ([]byte, error) {
			out, _, err := Unmerge([]byte(cluster), old, "work")
			if err == nil {
				err = CleanOriginal(path, []byte(cluster), out)
			}
			return out, err
		}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(when, want string) {
		t.Helper()
		text, err := os.ReadFile(copyOf(path))
		if want == "" && !errors.Is(err, os.ErrNotExist) || want != "" && string(text) != want {
			t.Errorf("%s, the copy is %q (%v)", when, text, err)
		}
	}
	up(admin)
	expect("with a cluster", userConfig)
	up(second)
	expect("with two clusters", userConfig)
	down(admin)
	expect("with the second cluster", userConfig)
	up(admin)
	down(second)
	down(admin)
	expect("without a cluster", "")

	// A copy of a former program has the key of a cluster.
	up(admin)
	old, err := Merge([]byte(admin), []byte(strings.Replace(userConfig, "name: work", "name: older", 1)))
	if err == nil {
		err = os.WriteFile(copyOf(path), old, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	down(admin)
	text, err := os.ReadFile(copyOf(path))
	if err != nil || strings.Contains(string(text), "abc") || !strings.Contains(string(text), "older") {
		t.Errorf("the copy of a former program is %q (%v)", text, err)
	}
}
