package imagereference

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestTag(t *testing.T) {
	const sum = "@sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for image, want := range map[string]string{
		"nginx": "latest", "nginx:1": "1", "a/b": "latest", "localhost/b:x": "x", "localhost:5000/b": "latest",
		"nginx:latest": "latest", "nginx:latest" + sum: "latest", "nginx:latest2": "latest2", "localhost:5000/b:latest": "latest",
		"sha256:latest": "latest",
		"nginx" + sum:   "", "nginx:1" + sum: "1", "nginx:1@md5:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa": "",
		"": "", "A": "", "Foo/bar": "latest", "a b": "", "[::1]:5000/a:b": "b", "a__b:c": "c", "a___b": "", strings.Repeat("a", 64): "",
	} {
		if got := Tag(image); got != want {
			t.Errorf("tag of %q is %q, want %q", image, got, want)
		}
		if got := PullPolicy(image); (got == corev1.PullAlways) != (want == "latest") {
			t.Errorf("%q is pulled %s", image, got)
		}
	}
}

// FuzzTag checks that a tag is a part of its reference, and that only images with the tag latest are always pulled.
func FuzzTag(f *testing.F) {
	f.Add("localhost:5000/a/b:c@sha256:00")
	f.Fuzz(func(t *testing.T, image string) {
		if tag := Tag(image); tag != "" && tag != "latest" && !strings.Contains(image, ":"+tag) {
			t.Errorf("tag of %q is %q", image, tag)
		}
		if (PullPolicy(image) == corev1.PullAlways) != (Tag(image) == "latest") {
			t.Errorf("%q is pulled %s", image, PullPolicy(image))
		}
	})
}
