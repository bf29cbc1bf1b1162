package command

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

// TestWriteJSON checks that JSON has no character that a terminal obeys, and means the same all the same.
func TestWriteJSON(t *testing.T) {
	const text = "a\x1b[1m\u007f\u009b31m\u202eevil\u2066\u2028\U000e0041 ä€😀 <&>\n\t\"\\"
	var out bytes.Buffer
	if err := WriteJSON(&out, map[string]string{text: text}); err != nil {
		t.Fatal(err)
	}
	if i := strings.IndexFunc(out.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("%q is not printable", out.String()[i:])
	}
	if !strings.Contains(out.String(), "ä€😀") {
		t.Errorf("%s has other letters", out.String())
	}
	var back map[string]string
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back[text] != text {
		t.Errorf("%s means %q: %v", out.String(), back, err)
	}
}
