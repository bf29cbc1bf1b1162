package printable

import "testing"

// TestText checks that nothing is left that a terminal would obey, and that ordinary text stays as it is.
func TestText(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "",
		"größer als 3 MB → 日本":    "größer als 3 MB → 日本",
		"a\tb\nc":                 "a\tb\nc",
		"\x1b]0;title\a":          `\x1b]0;title\a`,
		"\u009b2J":                `\u009b2J`,
		"\u202egpj.exe\u2066\r":   `\u202egpj.exe\u2066\r`,
		"not UTF-8: \x9b, \x80\b": "not UTF-8: \ufffd, \ufffd" + `\b`,
		"not UTF-8: \xff":         "not UTF-8: \ufffd",
	} {
		if got := Text(in); got != want {
			t.Errorf("Text(%q) = %q, want %q", in, got, want)
		}
	}
}
