package cli

import (
	"strconv"
	"strings"
	"unicode"
)

// plain makes a text harmless that somebody else wrote: a terminal obeys some characters, and others turn the order of a line
// around. They are shown as their codes.
func plain(text string) string {
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
