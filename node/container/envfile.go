package container

import (
	"fmt"
	"strings"
)

// maxEnvFile limits the size of environment files, as objects are limited.
const maxEnvFile = 1 << 20

// envFile finds a variable in a file of lines NAME='value'. It accepts a strict subset of what a shell accepts, so that
// the file means the same to both: values are in single quotes and may span lines, comments begin with #, and nothing
// is expanded. The whole file up to the variable must be valid.
func envFile(text, key string) (value string, found bool, err error) {
	at := 1 // line number
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		line = strings.TrimSuffix(line, "\r")
		trimmed := strings.TrimLeft(line, " \t")
		if trimmed == "" || trimmed[0] == '#' {
			text, at = rest, at+1
			continue
		}
		bad := func(why string) (string, bool, error) {
			return "", false, fmt.Errorf("invalid environment variable format at line %d: %s", at, why)
		}
		name, after, ok := strings.Cut(trimmed, "=")
		switch {
		case !ok:
			return bad("missing '='")
		case strings.TrimSpace(name) == "":
			return bad("empty variable name")
		case name != strings.TrimRight(name, " \t"):
			return bad("whitespace before '=' is not allowed")
		case after != strings.TrimLeft(after, " \t"):
			// As in a shell, NAME= 'x' sets NAME to the empty string.
			if name == key {
				return "", true, nil
			}
			text, at = rest, at+1
			continue
		case !strings.HasPrefix(after, "'"):
			return bad("value must be enclosed in single quotes")
		}
		// The value extends, over lines, to the next quote.
		open := strings.Index(text, "='") + 2
		length := strings.IndexByte(text[open:], '\'')
		if length < 0 {
			return "", false, fmt.Errorf("invalid environment variable format starting at line %d: unclosed single quote", at)
		}
		value = strings.ReplaceAll(text[open:open+length], "\r\n", "\n")
		at += strings.Count(text[open:open+length], "\n")
		tail, rest, _ := strings.Cut(text[open+length+1:], "\n")
		if tail = strings.TrimSpace(tail); tail != "" && tail[0] != '#' {
			return bad("unexpected content after closing quote")
		}
		if name == key {
			return value, true, nil
		}
		text, at = rest, at+1
	}
	return "", false, nil
}
