package mounts_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proa.dev/node/volume/mounts"
)

const table = `22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 27 0:40 / /data/pods/a/volumes/secret rw,relatime - tmpfs tmpfs rw
41 27 0:41 / /data/pods/a/volumes/secret rw - tmpfs tmpfs rw
42 27 254:0 /srv/x\040y /data/pods/a/volumes/local rw,noatime master:3 - ext4 /dev/vda rw
43 42 0:43 / /data/pods/a/volumes/local/deep/er rw - fuse.x a:b rw
44 27 0:44 / /data/pods/ab rw - tmpfs tmpfs rw
`

func TestParse(t *testing.T) {
	all, err := mounts.Parse(strings.NewReader(table))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range mounts.Under(all, "/data/pods/a") {
		got = append(got, fmt.Sprintf("%d %s %s %s", m.ID, m.Point, m.Type, m.Root))
	}
	want := []string{
		"43 /data/pods/a/volumes/local/deep/er fuse.x /", "42 /data/pods/a/volumes/local ext4 /srv/x y",
		"41 /data/pods/a/volumes/secret tmpfs /", "40 /data/pods/a/volumes/secret tmpfs /",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if m, ok := mounts.HoldingMount(all, "/data/pods/a/volumes/secret/x"); !ok || m.ID != 41 {
		t.Errorf("the mount is %+v, want the one on top", m)
	}
	if m, ok := mounts.HoldingMount(all, "/srv"); !ok || !m.Shared {
		t.Errorf("the mount is %+v, want the shared root", m)
	}
	if _, err := mounts.Parse(strings.NewReader("nonsense\n")); err == nil {
		t.Error("an invalid table was accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(table)
	f.Add("1 2 3 \\04 \\999 o - t s\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := mounts.Parse(strings.NewReader(text))
		if err == nil && len(all) > 0 && len(mounts.Under(all, "/")) != len(all) {
			t.Error("a mount is not under the root")
		}
	})
}

func TestRemoveStaysInside(t *testing.T) {
	base := t.TempDir()
	outside := filepath.Join(base, "outside")
	dir := filepath.Join(base, "pod")
	for _, d := range []string{outside, filepath.Join(dir, "a", "b")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	outsideFile := filepath.Join(outside, "precious")
	if err := os.WriteFile(outsideFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for link, to := range map[string]string{"abs": outside, "rel": "../outside", "a/file": outsideFile, "a/b/up": "../../../outside",
		"loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := mounts.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was not removed: %v", err)
	}
	if _, err := os.Lstat(outsideFile); err != nil {
		t.Errorf("the target of a link was removed: %v", err)
	}
	if err := mounts.Remove(dir); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestRemoveDeep removes a tree that is deeper than the limit of open files.
func TestRemoveDeep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 5000 {
		if err := unix.Mkdirat(at, "d", 0o755); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at)
		at = next
	}
	_ = unix.Close(at)
	if err := mounts.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it was not removed: %v", err)
	}
}

func asRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
}

func TestRemoveDoesNotGoThroughMounts(t *testing.T) {
	asRoot(t)
	base := t.TempDir()
	data, dir := filepath.Join(base, "data"), filepath.Join(base, "pod")
	for _, d := range []string{data, filepath.Join(dir, "v", "data")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	mountedFile := filepath.Join(data, "precious")
	if err := os.WriteFile(mountedFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mounts.UnmountAll(base) })
	if err := mounts.Bind(data, filepath.Join(dir, "v", "data"), mounts.ReadWrite); err != nil {
		t.Skip("this host does not allow mounts: ", err)
	}
	if err := mounts.Remove(dir); err == nil {
		t.Error("a folder with a bind mount of the same file system was removed")
	}
	if _, err := os.Lstat(mountedFile); err != nil {
		t.Fatalf("a mounted file was removed: %v", err)
	}
	if err := mounts.UnmountAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := mounts.Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(mountedFile); err != nil {
		t.Errorf("a file was removed after it was unmounted: %v", err)
	}
}

func TestMounts(t *testing.T) {
	asRoot(t)
	base := t.TempDir()
	t.Cleanup(func() { _ = mounts.UnmountAll(base) })
	dir, other := filepath.Join(base, "memory"), filepath.Join(base, "other")
	for _, d := range []string{dir, other} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if is, err := mounts.IsMountPoint(dir); err != nil || is {
		t.Fatalf("a folder is a mount point: %v, %v", is, err)
	}
	if err := mounts.Tmpfs(dir, 1<<20); err != nil {
		t.Skip("this host does not allow mounts: ", err)
	}
	if is, err := mounts.IsMountPoint(dir); err != nil || !is {
		t.Fatalf("the tmpfs is not a mount point: %v, %v", is, err)
	}
	if err := mounts.Resize(dir, 2<<20); err != nil {
		t.Error(err)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil || int64(s.Blocks)*s.Bsize != 2<<20 {
		t.Errorf("the size is %d, %v", int64(s.Blocks)*s.Bsize, err)
	}
	if err := mounts.Bind(dir, other, mounts.ReadOnly); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("got %v, want a read-only file system", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o600); err != nil {
		t.Error(err)
	}
	all, err := mounts.Table()
	if err != nil {
		t.Fatal(err)
	}
	if shown := mounts.OtherMountPoints(all, dir); len(shown) != 1 || shown[0] != other {
		t.Errorf("other mount points: %v", shown)
	}
	if err := mounts.Share(base); err != nil {
		t.Fatal(err)
	}
	all, err = mounts.Table()
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := mounts.HoldingMount(all, filepath.Join(base, "x")); !ok || !m.Shared {
		t.Errorf("%+v is not shared", m)
	}
	if err := mounts.Unshare(base); err != nil {
		t.Error(err)
	}
	if is, err := mounts.IsMountPoint(dir); err != nil || is {
		t.Errorf("still mounted: %v, %v", is, err)
	}
}
