package upstream

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRequired(t *testing.T) {
	file := filepath.Join(t.TempDir(), "go.mod")
	text := "module x\n\nrequire (\n\tgo.etcd.io/etcd/server/v3 v3.7.3\n\tk8s.io/kubernetes v1.37.1\n)\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for module, want := range map[string]string{"k8s.io/kubernetes": "v1.37.1", "go.etcd.io/etcd/server/v3": "v3.7.3"} {
		if got, err := required(file, module); err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", module, got, err, want)
		}
	}
	if _, err := required(file, "k8s.io/none"); err == nil {
		t.Error("a module that is not required was found")
	}
}

func TestCacheCanBeMoved(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PROA_CACHE", dir)
	if got, err := Cache(); err != nil || got != dir {
		t.Errorf("cache %q, %v; want %q", got, err, dir)
	}
}

func TestPinsNameEveryProgram(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(root, pins, "tools.go"))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range programs() {
		if !strings.Contains(string(data), `"`+strings.TrimSuffix(p.pkg, "/server/v3")) {
			t.Errorf("%s: tools.go does not import %s, so go.sum may lack what it needs", name, p.pkg)
		}
	}
}

func TestFolderOfTheCaller(t *testing.T) {
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
