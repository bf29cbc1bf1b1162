package build

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"proa.dev/test/images/oci"
	"proa.dev/test/upstream"
)

const (
	hello    = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of "hello"
	noDigest = "0000000000000000000000000000000000000000000000000000000000000000"
)

func TestParseLock(t *testing.T) {
	good := "# comment\n\nbusybox busybox-static 1:1.35 " + hello + " pool/main/b.deb\n"
	got, err := parseLock(good)
	if want := []locked{{"busybox", "busybox-static", "1:1.35", hello, "pool/main/b.deb"}}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
	for _, bad := range []string{"a b c\n", "a b c short pool/x\n", "a b c " + hello + " ../x\n", "a b c " + hello + " /x\n",
		"a b c " + hello + " x y\n"} {
		if _, err := parseLock(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzParseLock(f *testing.F) {
	f.Add("g n 1 " + hello + " pool/x\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseLock(text)
		for _, l := range all {
			again, err := parseLock(l.String())
			if err != nil || len(again) != 1 || again[0] != l {
				t.Errorf("%q is read as %v, %v", l, again, err)
			}
		}
		if err != nil && len(all) > 0 {
			t.Error("both lines and an error")
		}
	})
}

func TestParseShown(t *testing.T) {
	text := "Package: a\nVersion: 1\nFilename: pool/a.deb\nSHA256: x\nDescription: d\n\nPackage: b\nVersion: 2\nSHA256: y\nFilename: pool/b.deb\n"
	want := []locked{{"g", "a", "1", "x", "pool/a.deb"}, {"g", "b", "2", "y", "pool/b.deb"}}
	if got := parseShown("g", text); !reflect.DeepEqual(got, want) {
		t.Errorf("%v; want %v", got, want)
	}
}

// TestLockIsComplete compares the lock file with what the images ask for.
func TestLockIsComplete(t *testing.T) {
	root, err := upstream.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "test/images/build/packages_*.lock"))
	if err != nil || len(files) == 0 {
		t.Fatalf("lock files %v, %v", files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all, err := parseLock(string(data))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(all, func(l locked) bool { return l.group == sources && l.name == "busybox" }) {
			t.Errorf("%s lacks the source of busybox; run: go run ./test/images -lock", filepath.Base(file))
		}
		for group, names := range wanted() {
			for _, name := range names {
				if !slices.ContainsFunc(all, func(l locked) bool { return l.group == group && l.name == name }) {
					t.Errorf("%s lacks %s of %s; run: go run ./test/images -lock", filepath.Base(file), name, group)
				}
			}
		}
	}
}

func TestMerged(t *testing.T) {
	for name, want := range map[string]string{
		"bin": "", "bin/sh": "usr/bin/sh", "lib/x86_64-linux-gnu/libc.so.6": "usr/lib/x86_64-linux-gnu/libc.so.6",
		"lib64/ld.so": "usr/lib64/ld.so",
		"usr/bin/x":   "usr/bin/x", "usr/share/doc": "", "usr/share/doc/x/y": "", "usr/share/documents": "usr/share/documents",
		"etc":    "etc",
		"libs/x": "libs/x",
	} {
		if got := merged(name); got != want {
			t.Errorf("%s becomes %q; want %q", name, got, want)
		}
	}
}

// TestFetch serves one valid package and several invalid ones, and checks that only the valid one gets into the cache.
func TestFetch(t *testing.T) {
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served++
		if r.URL.Path != "/pool/a.deb" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "hello")
	}))
	defer server.Close()
	t.Setenv("PROA_DEBIAN_MIRROR", server.URL+"/")
	cache := t.TempDir()
	for _, test := range []struct {
		l    locked
		want string // of the error
	}{
		{locked{"g", "a", "1", hello, "pool/a.deb"}, ""},
		{locked{"g", "a", "1", hello, "pool/a.deb"}, ""},
		{locked{"g", "a", "1", noDigest, "pool/a.deb"}, "the lock file says " + noDigest},
		{locked{"g", "b", "1", noDigest, "pool/b.deb"}, "404 Not Found; if the archive has a newer one, run: go run ./test/images -lock"},
	} {
		path, err := fetch(t.Context(), cache, test.l)
		if test.want == "" {
			if data, readErr := os.ReadFile(path); err != nil || string(data) != "hello" {
				t.Errorf("%v: %q, %v, %v", test.l, data, err, readErr)
			}
		} else if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v; want %q", test.l, err, test.want)
		}
	}
	if served != 3 {
		t.Errorf("%d requests; want 3, for the second was in the cache", served)
	}
	if left, err := os.ReadDir(filepath.Join(cache, "debs")); err != nil || len(left) != 1 {
		t.Errorf("the cache holds %v, %v; want one package", left, err)
	}
}

// TestKey changes one input after the other.
func TestKey(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"build", "oci"} {
		if err := os.MkdirAll(filepath.Join(root, "test/images", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	code := filepath.Join(root, "test/images/oci/tree.go")
	seen := map[string]string{}
	k := &builder{root: root, lock: []locked{{"g", "a", "1", hello, "p"}, {"other", "b", "1", hello, "p"}}}
	s := set{name: "s", groups: []string{"g"}}
	in := inputs{programs: map[string][]byte{"p": []byte("1")}, data: map[string][]byte{"d": []byte("1")}}
	look := func(what string) {
		t.Helper()
		key, err := k.key(s, in)
		if err != nil {
			t.Fatal(err)
		}
		if before := seen[key]; before != "" {
			t.Errorf("%s has the key of %s", what, before)
		}
		seen[key] = what
	}
	look("the first")
	in.programs["p"] = []byte("2")
	look("another program")
	in.data["d"] = []byte("2")
	look("other data")
	k.lock[0].sha256 = noDigest
	look("another package")
	if err := os.WriteFile(code, []byte("package oci"), 0o600); err != nil {
		t.Fatal(err)
	}
	look("other code")
	before := maps.Clone(seen)
	k.lock[1].sha256 = noDigest // a package of another group
	key, err := k.key(s, in)
	if err != nil || before[key] == "" {
		t.Errorf("a package of another set changed the key, %v", err)
	}
}

func TestPrune(t *testing.T) {
	k := &builder{cache: t.TempDir()}
	now := time.Now()
	for name, age := range map[string]time.Duration{"a/s.tar": time.Hour, "b/s.tar": 200 * time.Hour, "c/other.tar": 200 * time.Hour} {
		path := filepath.Join(k.cache, "images", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600),
			os.Chtimes(path, now.Add(-age), now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.prune(set{name: "s"}, now); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(k.cache, "images", "*"))
	if err != nil || len(left) != 2 || filepath.Base(left[0]) != "a" || filepath.Base(left[1]) != "c" {
		t.Errorf("%v, %v are left; want a and c", left, err)
	}
}

func TestUnknownImage(t *testing.T) {
	if _, err := Archives(t.Context(), "nothing"); err == nil || !strings.Contains(err.Error(), "busybox") {
		t.Errorf("%v; want the names that there are", err)
	}
}

// TestConfigureSaysWhatIsMissing checks the errors for packages that lack required files.
func TestConfigureSaysWhatIsMissing(t *testing.T) {
	if err := configure(oci.Tree{}); err == nil || !strings.Contains(err.Error(), "/usr/share/") {
		t.Errorf("%v; want the path of a file", err)
	}
}
