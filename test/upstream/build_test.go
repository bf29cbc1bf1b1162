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
