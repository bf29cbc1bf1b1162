package fsgroup_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/node/volume/fsgroup"
)

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may change the group of files")
	}
}

// createTree creates a volume with files, a folder, a pipe, and a link out of it.
func createTree(t *testing.T) (dir, outside string) {
	t.Helper()
	base := t.TempDir()
	dir, outside = filepath.Join(base, "v"), filepath.Join(base, "outside")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(dir, "d"), 0o755))
	must(os.WriteFile(outside, nil, 0o600))
	must(os.WriteFile(filepath.Join(dir, "f"), nil, 0o600))
	must(os.WriteFile(filepath.Join(dir, "d", "x"), nil, 0o711))
	must(os.Symlink(outside, filepath.Join(dir, "link")))
	must(syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	return dir, outside
}

func describeTree(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		out = append(out, fmt.Sprintf("%s %d %v", rel, info.Sys().(*syscall.Stat_t).Gid, info.Mode()))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(out, "\n")
}

func TestApply(t *testing.T) {
	asRoot(t)
	for name, c := range map[string]struct {
		readOnly bool
		want     string
	}{
		"read and write": {false, ". 1234 dgrwxrwxr-x\nd 1234 dgrwxrwxr-x\nd/x 1234 -rwxrw-r-x\nf 1234 -rw-rw----\nlink 1234 Lrwxrwxrwx\npipe 1234 prw-rw----"},
		"read":           {true, ". 1234 dgrwxr-xr-x\nd 1234 dgrwxr-xr-x\nd/x 1234 -rwxr--r-x\nf 1234 -rw-r-----\nlink 1234 Lrwxrwxrwx\npipe 1234 prw-r-----"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, outside := createTree(t)
			if err := os.Chmod(filepath.Join(dir, "d", "x"), 0o705); err != nil {
				t.Fatal(err)
			}
			g := fsgroup.Change{Dir: dir, Group: 1234, ReadOnly: c.readOnly}
			if err := g.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := describeTree(t, dir); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			if got := describeTree(t, outside); got != ". 0 -rw-------" {
				t.Errorf("the target of a link was changed: %s", got)
			}
			if g.Count.Load() != 6 {
				t.Errorf("counted %d files", g.Count.Load())
			}
		})
	}
}

func TestOnRootMismatch(t *testing.T) {
	asRoot(t)
	dir, _ := createTree(t)
	policy := corev1.FSGroupChangeOnRootMismatch
	apply := func() int64 {
		t.Helper()
		g := fsgroup.Change{Dir: dir, Group: 7, Policy: &policy}
		if err := g.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		return g.Count.Load()
	}
	if n := apply(); n != 6 {
		t.Errorf("%d files were changed the first time, want all", n)
	}
	if n := apply(); n != 0 {
		t.Errorf("%d files were changed although the root matches", n)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if n := apply(); n != 6 {
		t.Errorf("%d files were changed although the root does not match", n)
	}
}
