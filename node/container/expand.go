package container

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"proa.dev/node/cri"
)

// MaxArguments is the number of bytes that the environment, the command and the arguments of a container may have together. Linux
// starts no program with more, whatever the node does.
const MaxArguments = 6 << 20

// maxExpandedPath is the length of the longest path that Linux accepts.
const maxExpandedPath = 4096

// ErrTooLong says that a text is longer than permitted when its variables are replaced by their values.
var ErrTooLong = errors.New("with the values of its variables it is too long")

// Expand replaces $(NAME) by the result of value. $$ stands for one $, and everything else stays as it is. A result of more than
// limit bytes is an error: variables that refer to variables grow exponentially.
func Expand(text string, value func(name string) string, limit int) (string, error) {
	var out strings.Builder
	closed := true // a parenthesis may follow
	for text != "" {
		at := strings.IndexByte(text, '$')
		if at < 0 || at+1 == len(text) {
			at = len(text)
		}
		piece := text[:at]
		if text = text[at:]; at == 0 {
			end := -1
			if closed && text[1] == '(' {
				end = strings.IndexByte(text, ')')
				closed = end > 0
			}
			switch {
			case text[1] == '$':
				piece, text = "$", text[2:]
			case end > 0:
				piece, text = value(text[2:end]), text[end+1:]
			default:
				piece, text = "$", text[1:]
			}
		}
		if out.Len()+len(piece) > limit {
			return "", ErrTooLong
		}
		out.WriteString(piece)
	}
	return out.String(), nil
}

// orReference looks a name up in environments, the first one first. A name that none has stays a reference.
func orReference(environments ...map[string]string) func(string) string {
	return func(name string) string {
		for _, e := range environments {
			if v, ok := e[name]; ok {
				return v
			}
		}
		return "$(" + name + ")"
	}
}

// PathExpander returns a function that is Expand for paths: a variable without a value is an error, because a folder called $(X) is
// never meant.
func PathExpander(env []*cri.KeyValue) func(text string) (string, error) {
	values := sync.OnceValue(func() map[string]string { return asMap(env) })
	return func(text string) (string, error) {
		missing := map[string]bool{}
		out, err := Expand(text, func(name string) string {
			if values()[name] == "" {
				missing[name] = true
			}
			return values()[name]
		}, maxExpandedPath)
		if len(missing) > 0 {
			return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
		}
		if err != nil {
			return "", fmt.Errorf("subPathExpr %.100q: %w: a path has at most %d bytes", text, err, maxExpandedPath)
		}
		return out, nil
	}
}

func asMap(env []*cri.KeyValue) map[string]string {
	out := make(map[string]string, len(env))
	for _, kv := range env {
		out[kv.Key] = string(kv.Value)
	}
	return out
}
