package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPinsNameEveryProgram(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range programs() {
		if p.pkg == "." {
			continue // the program itself is in the folder
		}
		data, err := os.ReadFile(filepath.Join(root, pins, p.pins, "tools.go"))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(data), `"`+strings.TrimSuffix(p.pkg, "/server/v3")) {
			t.Errorf("%s: tools.go does not import %s, so go.sum may lack what it needs", name, p.pkg)
		}
	}
}

// TestFindBuildsNothing checks that programs are found where Build makes them, and that an error says how to make one that is missing.
func TestFindBuildsNothing(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("PROA_CACHE", cache)
	_, err := Find("kubectl", "kubectl-old")
	if err == nil || !strings.Contains(err.Error(), "run go run ./test/upstream/cmd kubectl kubectl-old") {
		t.Errorf("in an empty cache: %v", err)
	}
	if made, _ := os.ReadDir(cache); len(made) != 0 {
		t.Errorf("it made %v", made)
	}
	if _, err := Find("unheard-of"); err == nil {
		t.Error("an unknown program was found")
	}
	out := filepath.Join(cache, "bin", "kubernetes-"+oldKubectlVersion(), "kubectl")
	if err := os.MkdirAll(filepath.Dir(out), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(out, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	built, err := Build(t.Context(), "kubectl-old")
	if err != nil || built["kubectl-old"] != out {
		t.Errorf("built %v (%v), want %s", built, err, out)
	}
	if found, err := Find("kubectl-old"); err != nil || found["kubectl-old"] != out {
		t.Errorf("found %v (%v), want %s", found, err, out)
	}
}

func TestCallerFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if got, err := folder(dir); err != nil || got != dir {
		t.Fatalf("folder %q, %v; want %q", got, err, dir)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := folder(dir); err == nil {
		t.Error("a folder with something in it was taken")
	}
}
