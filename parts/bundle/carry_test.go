package bundle

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// packPrograms packs a set of programs, each given as NAME=CONTENT.
func packPrograms(t *testing.T, programs ...string) []byte {
	t.Helper()
	dir := t.TempDir()
	var paths []string
	for _, p := range programs {
		name, text, _ := strings.Cut(p, "=")
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	var out bytes.Buffer
	if err := Pack(&out, paths...); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func open(t *testing.T, data []byte) *Set {
	t.Helper()
	s, err := Open(data)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestUnpack(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "bin")
	s := open(t, packPrograms(t, "a=#!/bin/sh", "b="+strings.Repeat("long ", 1000)))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			folder, err := s.Unpack(dir)
			if err != nil || folder != s.Folder(dir) {
				t.Errorf("got %s, %v", folder, err)
			}
		})
	}
	wg.Wait()
	folder := s.Folder(dir)
	if got := read(t, filepath.Join(folder, "a")); got != "#!/bin/sh" {
		t.Errorf("got %q", got)
	}
	info, err := os.Stat(filepath.Join(folder, "b"))
	if err != nil || info.Size() != 5000 || info.Mode().Perm() != 0o755 {
		t.Errorf("got %v, %v", info, err)
	}
	// Complete programs are kept, damaged ones are replaced.
	if _, err := s.Unpack(dir); err != nil {
		t.Error(err)
	}
	if again, err := os.Stat(filepath.Join(folder, "b")); err != nil || !os.SameFile(info, again) {
		t.Errorf("it was unpacked again: %v", err)
	}
	if err := os.Truncate(filepath.Join(folder, "b"), 3); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	if got := len(read(t, filepath.Join(folder, "b"))); got != 5000 {
		t.Errorf("it has %d bytes", got)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 { // the lock and the set
		t.Errorf("left are %v, %v", left, err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 2 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestUnpackRemovesOldReleases checks that unpacking keeps only the latest earlier release, and that isRunning finds the folder of a
// running program.
func TestUnpackRemovesOldReleases(t *testing.T) {
	dir := t.TempDir()
	for name, age := range map[string]time.Duration{"older": 3 * time.Hour, "old": 2 * time.Hour, "before": time.Hour} {
		folder := filepath.Join(dir, name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(folder, time.Time{}, time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, packPrograms(t, "a=1"))
	if _, err := s.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"older", "old", "before", s.version} {
		_, err := os.Stat(filepath.Join(dir, name))
		if there := err == nil; there != (name == "before" || name == s.version) {
			t.Errorf("%s is there: %t", name, there)
		}
	}
	exe, err := os.Executable()
	if err != nil || !isRunning(filepath.Dir(exe)) || isRunning(dir) {
		t.Errorf("isRunning is wrong: %v", err)
	}
}

func TestDamagedSets(t *testing.T) {
	good := packPrograms(t, "a=the program")
	head, body, _ := bytes.Cut(good, []byte("\n"))
	for name, x := range map[string]struct {
		data []byte
		want string
	}{
		"empty":       {nil, "have no beginning"},
		"no programs": {[]byte("[]\n"), "carries 0 programs"},
		"no JSON":     {[]byte("x\n"), "cannot be read"},
		"a way out":   {[]byte(`[{"name":"../a","size":1}]` + "\n"), `a program "../a"`},
		"hidden":      {[]byte(`[{"name":".lock","size":1}]` + "\n"), `a program ".lock"`},
		"endless":     {[]byte(`[{"name":"a","size":99999999999}]` + "\n"), "of 99999999999 bytes"},
		"cut off":     {good[:len(good)-8], "a: "},
		"another": {append(append(bytes.Replace(head, []byte(`"sha256":"`), []byte(`"sha256":"00`), 1), '\n'), body...),
			"the release is broken"},
		"not packed":   {append(append(bytes.Clone(head), '\n'), "plain text"...), "a: "},
		"nothing left": {append(bytes.Clone(head), '\n'), "a: "},
	} {
		dir := t.TempDir()
		s, err := Open(x.data)
		if err == nil {
			_, err = s.Unpack(dir)
		}
		if err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: got %v, want %q", name, err, x.want)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "[^.]*")); len(left) > 0 {
			t.Errorf("%s: left are %v", name, left)
		}
	}
}

func FuzzOpen(f *testing.F) {
	f.Add([]byte("[]\n"))
	f.Add([]byte(`[{"name":"a","size":3,"sha256":"00"}]` + "\nabc"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Open(data)
		if err != nil {
			return
		}
		dir := t.TempDir()
		if folder, err := s.Unpack(dir); err == nil && !s.whole(folder) {
			t.Error("it is unpacked and not whole")
		}
	})
}
