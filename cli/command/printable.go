package command

import (
	"strconv"
	"strings"
	"unicode"
)

// Printable escapes control characters, and those that change the direction of text, in a text of another origin, so
// that it cannot manipulate the terminal.
func Printable(text string) string {
	var out strings.Builder
	for _, r := range text {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			out.WriteRune(r)
			continue
		}
		out.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return out.String()
}
