package container

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"proa.dev/node/cri"
)

// Expand replaces $(NAME) by the result of value. $$ stands for one $, and everything else stays as it is.
func Expand(text string, value func(name string) string) string {
	var out strings.Builder
	for {
		at := strings.IndexByte(text, '$')
		if at < 0 || at+1 == len(text) {
			out.WriteString(text)
			return out.String()
		}
		out.WriteString(text[:at])
		rest := text[at+1:]
		end := strings.IndexByte(rest, ')')
		switch {
		case rest[0] == '$':
			out.WriteByte('$')
			text = rest[1:]
		case rest[0] == '(' && end > 0:
			out.WriteString(value(rest[1:end]))
			text = rest[end+1:]
		default:
			out.WriteByte('$')
			text = rest
		}
	}
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

// ExpandPath is Expand for paths: a variable without a value is an error, because a folder called $(X) is never meant.
func ExpandPath(text string, env []*cri.KeyValue) (string, error) {
	values, missing := asMap(env), map[string]bool{}
	out := Expand(text, func(name string) string {
		if values[name] == "" {
			missing[name] = true
		}
		return values[name]
	})
	if len(missing) > 0 {
		return "", fmt.Errorf("missing value for %s", strings.Join(slices.Sorted(maps.Keys(missing)), ", "))
	}
	return out, nil
}

func asMap(env []*cri.KeyValue) map[string]string {
	out := make(map[string]string, len(env))
	for _, kv := range env {
		out[kv.Key] = string(kv.Value)
	}
	return out
}
