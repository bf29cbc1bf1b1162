package datafolder

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestForeignFolders checks which folders a cluster may be put into.
func TestForeignFolders(t *testing.T) {
	for _, c := range []struct {
		files string
		is    bool
	}{
		{"", true}, {"lost+found/", true}, {"pki/ca.crt", true}, {"pki/ca.crt etcd/lost+found/ server.yaml", true},
		{"passwd pki/ca-trust/", false}, {"notes.txt", false}, {"etcd/member/ passwd", false}, {"version passwd", false},
		{"admin.kubeconfig notes.txt", true}, {"node/containerd/ notes.txt", true},
	} {
		dir := t.TempDir()
		for name := range strings.FieldsSeq(c.files) {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			var err error
			if strings.HasSuffix(name, "/") {
				err = os.MkdirAll(path, 0o700)
			} else {
				err = os.WriteFile(path, []byte("12.5\n"), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := CheckForeign(dir); (err == nil) != c.is {
			t.Errorf("%q: %v", c.files, err)
		}
	}
	if err := CheckForeign(filepath.Join(t.TempDir(), "none")); err != nil {
		t.Error(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := markVersion(dir); err != nil {
		t.Fatal(err)
	}
	if err := CheckForeign(dir); err != nil {
		t.Errorf("a folder of ours with a note: %v", err)
	}
}
