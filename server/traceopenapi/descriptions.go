package traceopenapi

import (
	_ "embed"
	"strings"
)

// descriptionText has a line for each kind, and for each field by package, type and name in JSON: the name, a colon and the text. A test
// checks that nothing is missing.
//
//go:embed descriptions.txt
var descriptionText string

// descriptions returns the texts of kinds and fields by their names.
func descriptions() map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(descriptionText) {
		if name, text, found := strings.Cut(strings.TrimSpace(line), ": "); found {
			out[name] = text
		}
	}
	return out
}
