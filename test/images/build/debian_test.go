package build

import "testing"

func TestArchive(t *testing.T) {
	for sources, want := range map[string]string{
		"# deb http://no.example/debian x\ndeb [signed-by=/k.gpg] http://a.example/debian/ bookworm main\n":            "http://a.example/debian",
		"Types: deb\n# http://old.example\nURIs: http://b.example/debian\nSuites: bookworm\n":                          "http://b.example/debian",
		"deb http://a.example/debian-security bookworm-security main\ndeb-src http://c.example/debian bookworm main\n": "",
		"": "",
	} {
		if got := archive(sources); got != want {
			t.Errorf("archive of %q is %q, want %q", sources, got, want)
		}
	}
}
