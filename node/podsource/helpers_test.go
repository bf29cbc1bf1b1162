package podsource

import (
	"context"
	"iter"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"
)

// Helpers of the tests inside and outside of this package.

// Web is the manifest of a static Pod.
const Web = `
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: kube-system, labels: {a: b}}
spec:
  containers:
  - {name: c, image: nginx}
`

// Manifest returns a manifest with another name and image.
func Manifest(name, image string) string {
	return strings.NewReplacer("name: web", "name: "+name, "nginx", image).Replace(Web)
}

// WriteFile writes a file.
func WriteFile(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// DiscardLogger returns a logger that discards everything.
func DiscardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }

// Stream reads updates one by one.
type Stream struct {
	t    *testing.T
	Next func() (Update, bool)
	last string
}

// OpenStream starts reading the updates of a source.
func OpenStream(t *testing.T, s *Source) *Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	next, stop := iter.Pull(s.Updates(ctx))
	t.Cleanup(func() { cancel(); stop() })
	return &Stream{t: t, Next: next}
}

// Want reads updates and compares them with "+NAME IMAGE", "-NAME IMAGE" or "complete".
func (s *Stream) Want(words ...string) {
	s.t.Helper()
	for _, want := range words {
		got, ok := s.last, true
		for got == s.last && ok { // updates may repeat, since others write the Pods of the API too
			var u Update
			u, ok = s.Next()
			got = "complete"
			if u.Pod != nil {
				got = "+" + u.Pod.Name + " " + u.Pod.Spec.Containers[0].Image
			}
			if u.Gone {
				got = "-" + got[1:]
			}
		}
		s.last = got
		if !ok || got != want {
			s.t.Fatalf("got %q %v, want %q", got, ok, want)
		}
	}
}
