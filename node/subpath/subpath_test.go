package subpath_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"proa.dev/node/subpath"
	"proa.dev/node/volume/mounts"
)

// testVolume has the paths of a volume, of a target, and of a folder of the host that must not be reached.
type testVolume struct{ base, volume, target, host string }

func newTestVolume(t testing.TB) testVolume {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root may mount")
	}
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := testVolume{base, filepath.Join(base, "volume"), filepath.Join(base, "pod/volume-subpaths/v/c/0"), filepath.Join(base, "host")}
	for _, d := range []string{p.volume, p.host} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p.write(t, p.host+"/precious", "secret")
	t.Cleanup(func() {
		if err := mounts.UnmountAll(base); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p testVolume) write(t testing.TB, name, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (p testVolume) link(t testing.TB, name, to string) {
	t.Helper()
	if err := os.Symlink(to, filepath.Join(p.volume, name)); err != nil {
		t.Fatal(err)
	}
}

func TestCheckPath(t *testing.T) {
	for sub, want := range map[string]string{
		"a": "", "a/b": "", "a..b": "", "": "",
		"/a":      "error SubPath `/a` must not be an absolute path",
		"..":      "unable to provision SubPath `..`: must not contain '..'",
		"a/../..": "unable to provision SubPath `a/../..`: must not contain '..'",
	} {
		got := ""
		if err := subpath.CheckPath(sub); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", sub, got, want)
		}
	}
}

func TestMount(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, p testVolume)
		sub     string
		read    string // a file below the target, or the target itself if empty
		want    string
	}{
		"a folder":      {func(t *testing.T, p testVolume) { p.write(t, p.volume+"/d/f", "x") }, "d", "f", "x"},
		"a file":        {func(t *testing.T, p testVolume) { p.write(t, p.volume+"/d/f", "x") }, "d/f", "", "x"},
		"a link inside": {func(t *testing.T, p testVolume) { p.write(t, p.volume+"/d/f", "x"); p.link(t, "l", "d") }, "l", "f", "x"},
		"links to a file": {func(t *testing.T, p testVolume) {
			p.write(t, p.volume+"/..1/f", "x")
			p.link(t, "..data", "..1")
			p.link(t, "f", "..data/f")
		}, "f", "", "x"},
		"an absolute link into the volume": {func(t *testing.T, p testVolume) {
			p.write(t, p.volume+"/d/f", "x")
			p.link(t, "l", p.volume+"/d")
		}, "l", "f", "x"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestVolume(t)
			c.prepare(t, p)
			if err := subpath.Mount(p.volume, c.sub, p.target); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(p.target, c.read))
			if err != nil || string(got) != c.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestMissingFoldersAreCreated(t *testing.T) {
	p := newTestVolume(t)
	if err := os.Chmod(p.volume, 0o775|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := subpath.Mount(p.volume, "a/b", p.target); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a", "a/b"} {
		info, err := os.Lstat(filepath.Join(p.volume, d))
		if err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o775 {
			t.Errorf("%s: %v, %v; want the mode of the volume", d, info.Mode(), err)
		}
	}
	p.write(t, p.target+"/f", "through")
	if got, err := os.ReadFile(p.volume + "/a/b/f"); err != nil || string(got) != "through" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestLinksOutOfTheVolumeAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ link, to, sub string }{
		"absolute":                {"l", "HOST", "l"},
		"relative":                {"l", "../host", "l"},
		"a file":                  {"l", "HOST/precious", "l"},
		"through a link":          {"l", "HOST", "l/precious"},
		"a new folder outside":    {"l", "HOST", "l/new/er"},
		"a dangling link":         {"l", "HOST/none", "l"},
		"through a dangling link": {"l", "HOST/none", "l/x"},
		"a process":               {"l", "/proc/self/root", "l/etc"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestVolume(t)
			p.link(t, c.link, strings.ReplaceAll(c.to, "HOST", p.host))
			if err := subpath.Mount(p.volume, c.sub, p.target); err == nil {
				t.Error("it was mounted")
			}
			if is, err := mounts.IsMountPoint(p.target); is || err != nil {
				t.Errorf("the target is mounted: %v, %v", is, err)
			}
			all, err := os.ReadDir(p.host)
			if err != nil || len(all) != 1 {
				t.Errorf("the host has %v, %v", all, err)
			}
		})
	}
}

// TestMountDuringChanges exchanges a folder of the volume with links out of it, again and again, while it is mounted.
func TestMountDuringChanges(t *testing.T) {
	p := newTestVolume(t)
	p.write(t, p.volume+"/d/f/precious", "volume")
	p.link(t, "out", "../host")
	p.link(t, "abs", p.host)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			other := []string{"out", "abs"}[i%2]
			_ = unix.Renameat2(unix.AT_FDCWD, p.volume+"/d", unix.AT_FDCWD, p.volume+"/"+other, unix.RENAME_EXCHANGE)
			_ = unix.Renameat2(unix.AT_FDCWD, p.volume+"/d", unix.AT_FDCWD, p.volume+"/"+other, unix.RENAME_EXCHANGE)
		}
	}()
	defer func() { close(stop); <-done }()
	good := 0
	for range 3000 {
		for _, sub := range []string{"d/f", "d", "d/new"} {
			if err := subpath.Mount(p.volume, sub, p.target); err != nil {
				continue
			}
			good++
			for _, name := range []string{"/precious", "/f/precious"} {
				got, err := os.ReadFile(p.target + name)
				if err == nil && string(got) != "volume" {
					t.Fatalf("%s shows %q", sub, got)
				}
			}
		}
	}
	if all, err := os.ReadDir(p.host); err != nil || len(all) != 1 {
		t.Errorf("the host has %v, %v", all, err)
	}
	t.Logf("%d of 9000 were mounted", good)
}

func TestMountAgain(t *testing.T) {
	p := newTestVolume(t)
	p.write(t, p.volume+"/f", "one")
	mount := func() {
		t.Helper()
		if err := subpath.Mount(p.volume, "f", p.target); err != nil {
			t.Fatal(err)
		}
	}
	count := func() int {
		t.Helper()
		all, err := mounts.Table()
		if err != nil {
			t.Fatal(err)
		}
		return len(mounts.Under(all, p.base))
	}
	mount()
	mount()
	if n := count(); n != 1 {
		t.Errorf("%d mounts, want one", n)
	}
	if err := os.Remove(p.volume + "/f"); err != nil {
		t.Fatal(err)
	}
	p.write(t, p.volume+"/f", "two")
	mount()
	if got, err := os.ReadFile(p.target); err != nil || string(got) != "two" || count() != 1 {
		t.Errorf("got %q, %v, %d mounts", got, err, count())
	}
	if err := os.Remove(p.volume + "/f"); err != nil {
		t.Fatal(err)
	}
	p.write(t, p.volume+"/f/in", "three")
	mount()
	if got, err := os.ReadFile(p.target + "/in"); err != nil || string(got) != "three" || count() != 1 {
		t.Errorf("got %q, %v, %d mounts", got, err, count())
	}
}

func FuzzMount(f *testing.F) {
	for _, s := range []string{"a", "l/precious", "a/../b", "./a", "a//b", "l", "a/./l", "..", ".../x", "a\x00b"} {
		f.Add(s, "../host")
	}
	f.Fuzz(func(t *testing.T, sub, to string) {
		if len(sub) > 200 || len(to) > 200 {
			return
		}
		p := newTestVolume(t)
		if to != "" {
			_ = os.Symlink(to, p.volume+"/l")
		}
		if err := subpath.Mount(p.volume, sub, p.target); err == nil {
			if got, err := os.ReadFile(p.target + "/precious"); err == nil && string(got) == "secret" {
				t.Errorf("%q with a link to %q shows the host", sub, to)
			}
		}
		if all, err := os.ReadDir(p.host); err != nil || len(all) != 1 {
			t.Errorf("the host has %v, %v", all, err)
		}
		if _, err := os.Lstat(p.base + "/precious"); !errors.Is(err, fs.ErrNotExist) {
			t.Error("a file was created beside the volume")
		}
	})
}
