package cri

import "testing"

func TestNamespaceOf(t *testing.T) {
	for text, want := range map[string]string{
		`{"pid": 7}`: "/proc/7/ns/net",
		`{"pid": 7, "runtimeSpec": {"linux": {"namespaces": [{"type": "pid"}, {"type": "network", "path": "/run/netns/x"}]}}}`: "/run/netns/x",
		`{"pid": 7, "runtimeSpec": {"linux": {"namespaces": [{"type": "network"}]}}}`:                                          "/proc/7/ns/net",
		`{"pid": 0}`: "", `{}`: "", ``: "", `[]`: "",
	} {
		got, err := namespaceOf(map[string]string{"info": text})
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q (%v), want %q", text, got, err, want)
		}
	}
}
