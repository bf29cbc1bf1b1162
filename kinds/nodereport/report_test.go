package nodereport

import (
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"proa.dev/hop"
)

func TestTextRemovesCredentials(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"plain", "plain"},
		{`Get "https://u:secret@reg.example/v2/": EOF`, `Get "https://reg.example/v2/": EOF`},
		{"https://u:se/cret@reg.example/v2", "https://reg.example/v2"},
		{"https://u:secret@reg/a@sha256:abc", "https://reg/a@sha256:abc"},
		{"https://reg/a@sha256:abc", "https://reg/a@sha256:abc"},
		{"https://blobs/x?X-Amz-Signature=secret&y=1 refused", "https://blobs/x?... refused"},
		{"https://u:p?secret@reg/", "https://...?..."},
		{"a(https://u:secret@a/,https://v:secret@b/)", "a(https://b/)"},
		{"Authorization: Bearer secret x", "Authorization: Bearer ... x"},
		{"basic secret", "basic ..."},
		{"a\x1b[31m\nb\u202ec\x00", "a [31m b c"},
		{"\xff\xfe", ""},
		{"https://u:" + strings.Repeat("s", 5000) + "@reg/", ""},
		{strings.Repeat("é", 200), strings.Repeat("é", 41) + "..." + strings.Repeat("é", 85)},
		{"begin " + strings.Repeat("-", 1000) + " end", "begin " + strings.Repeat("-", 77) + "..." + strings.Repeat("-", 166) + " end"},
	} {
		if got := Text(c.in); got != c.want {
			t.Errorf("Text(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestPasswordAtLengthLimitIsRemoved(t *testing.T) {
	for n := 3900; n < 4200; n++ {
		if got := Text(strings.Repeat("-", n) + " https://u:sss@reg/"); strings.Contains(got, "s@") || strings.Contains(got, ":s") {
			t.Fatalf("%d: %q", n, got)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("https://u:p@h/x?y", "tok")
	f.Fuzz(func(t *testing.T, s, secret string) {
		for _, r := range Text(s) {
			if !unicode.IsPrint(r) {
				t.Fatalf("%q has %q", Text(s), r)
			}
		}
		if got := Text(s); len(got) > MaxText || !utf8.ValidString(got) {
			t.Fatalf("%d bytes: %q", len(got), got)
		}
		if len(secret) < 4 || strings.ContainsFunc(secret, func(r rune) bool { return r < 'g' || r > 'z' }) {
			return
		}
		if got := Text("https://u:" + secret + "@h/p?q=" + secret); got != "https://h/p?..." {
			t.Fatalf("%q", got)
		}
	})
}

func TestRecordIsTruncated(t *testing.T) {
	r := hop.Record{UID: "u", Rev: 7, Verb: hop.Pull, Resource: "pods", Namespace: "n", Name: "p", Start: time.Unix(1, 2), Open: true,
		Error: strings.Repeat("e", 1000), Steps: make([]hop.Step, 40)}
	r.Took[hop.Node], r.Wait[hop.Node] = 3, 2
	got := OfHop(&r)
	if got.Took != 3 || got.Wait != 2 || got.Revision != 7 || !got.Open || len(got.Error) != MaxText || len(got.Steps) != MaxSteps {
		t.Errorf("%+v", got)
	}
	if HopOf(hop.Program) != hop.Network || HopOf(hop.Reconcile) != 0 || HopOf("create") != 0 {
		t.Error("the hops of verbs are wrong")
	}
}

func TestDeepCopy(t *testing.T) {
	r := &NodeReport{Records: []Record{{Steps: []Step{{Name: "a"}}}}}
	r.DeepCopyObject().(*NodeReport).Records[0].Steps[0].Name = "b"
	if r.Records[0].Steps[0].Name != "a" {
		t.Error("the copy shares its steps")
	}
}
