package controltest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestEveryControllerIsPerturbed finds controllers without a script that runs under the perturbations.
func TestEveryControllerIsPerturbed(t *testing.T) {
	folders, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range folders {
		if !f.IsDir() || f.Name() == "controltest" || !declares(t, filepath.Join("..", f.Name())) {
			continue
		}
		if !scripted(t, filepath.Join("..", f.Name(), "testdata")) {
			t.Errorf("control/%s has no script without \"$ exact\": add one, so that a stale view, missed events and a crash are tried on it", f.Name())
		}
	}
}

// declares says that a folder has a controller.
func declares(t *testing.T, dir string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(name, "_test.go") && bytes.Contains(text, []byte("control.Controller{")) {
			return true
		}
	}
	return false
}

// scripted says that a folder has a script that is perturbed.
func scripted(t *testing.T, dir string) (found bool) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(name) != ".txt" {
			return err
		}
		text, err := os.ReadFile(name)
		if steps := parse(string(text)); len(steps) > 0 && steps[0].name() != "exact" && bytes.Contains(text, []byte("\n$ create\n")) || bytes.HasPrefix(text, []byte("$ create\n")) {
			found = true
		}
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return found
}
