package streamoptions

import (
	"path"
	"strings"
	"testing"
)

func TestCleanPath(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "/": "/", "pods": "/pods", "/pods": "/pods", "//pods": "/pods", "stats//summary": "/stats/summary", "logs/": "/logs/",
		"exec/ns/p/c": "/exec/ns/p/c", "a;b": "/a;b", "...": "/...", "exec./x": "/exec./x",
		"..": "no", ".": "no", "pods/../portForward/ns/p": "no", "./exec/ns/p/c": "no", "pods/..": "no", "pods/./": "no",
		`pods\..\portForward`: "no", "pods\x00": "no", "pods/\n": "no",
	} {
		got, ok := CleanPath(in)
		if !ok {
			got = "no"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

// FuzzCleanPath checks that a clean path is clean for every parser, and that cleaning it again changes nothing.
func FuzzCleanPath(f *testing.F) {
	for _, p := range []string{"pods", "//exec/a", "pods/../exec", "a/", `\exec`, "%2e%2e/exec"} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		clean, ok := CleanPath(p)
		if !ok {
			return
		}
		if again, ok := CleanPath(clean); !ok || again != clean {
			t.Errorf("%q: %q, and then %q %v", p, clean, again, ok)
		}
		if joined := path.Join("/", clean); joined != strings.TrimSuffix(clean, "/") && clean != "/" && clean != "" {
			t.Errorf("%q: %q is joined to %q", p, clean, joined)
		}
		if RunsInContainer(clean) != RunsInContainer(path.Join("/", p)) {
			t.Errorf("%q is judged as %q, and means something else", p, clean)
		}
	})
}
