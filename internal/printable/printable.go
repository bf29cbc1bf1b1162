// Package printable makes texts of other users safe to show in a terminal.
package printable

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text escapes control characters, and those that change the direction of text, so that a text cannot manipulate the terminal that shows
// it. Line breaks and tabs stay.
func Text(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, isUnsafe) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		if isUnsafe(r) {
			out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
			continue
		}
		out.WriteRune(r)
	}
	return out.String()
}

func isUnsafe(r rune) bool { return r != '\n' && r != '\t' && !unicode.IsPrint(r) }
