package command

import (
	"strings"
	"testing"
)

// TestPrintableEscapesControlCharacters checks that control characters in texts of other users, such as messages, names and
// conditions, are escaped, so that no terminal interprets them (CVE-2021-25743).
func TestPrintableEscapesControlCharacters(t *testing.T) {
	for in, want := range map[string]string{
		"two lines\n\tand a tab: äöü 日本": "two lines\n\tand a tab: äöü 日本",
		"\x1b[2Jgone":                    `\x1b[2Jgone`,
		"\x1b]0;title\a":                 `\x1b]0;title\a`,
		"over\rwritten\b\x7f":            `over\rwritten\b\x7f`,
		"\u009b31m":                      `\u009b31m`,
		"turned \u202e around":           `turned \u202e around`,
		"not \xff text":                  "not \ufffd text",
	} {
		if got := Printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
		if strings.ContainsAny(Printable(in), "\x1b\r\a\b\u009b\u202e") {
			t.Errorf("%q has control characters", in)
		}
	}
}
