package ui

import (
	"encoding/json"
	"math/rand/v2"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestYAML holds that what the page writes for people to edit is read as the same object again.
func TestYAML(t *testing.T) {
	t.Parallel()
	node := find(t, "node")
	texts := []string{"", " ", "a ", " a", "true", "No", "null", "~", "1", "1.5", "1e3", "0x1F", "0o17", "017", "1_000", ".5", ".inf", ".nan",
		"-", "- a", "? a", ": a", "a: b", "a:", "a #b", "#a", "&a", "*a", "!a", "|", ">", "%a", "@a", "`a", "{a", "[a", "'a", `"a`, "a\nb",
		"a\nb\n", "a\nb\n\n", "\n", "\n\n", "\na", " a\nb", "a \nb", "a\n b", "a\n\tb", "\ta", "a\tb", "a\r\nb", "\x1b[31m", "\x7f", "\u0085",
		"\u2028x", "\u202ex", "\ufeffx", "\U0001f600", "é", "a\u00a0b", "=", "<<", "2001-01-01", "12:30:45", "y", "on", "---", "...", "--- a",
		"a\n---\nb", "a: |\n  b\n", "/a/b", "_x", "+1", ".", "./a", "a\\b", "0", "-1", "Infinity", "a\n\n\nb", "tab\t\nend", "nbsp\u00a0\nx",
		strings.Repeat("long ", 100)}
	random := rand.New(rand.NewPCG(1, 2))
	letters := []rune("a \n\t:#-\"'\\|>1.é{},&\u0085\u2028~")
	for range 500 {
		var s strings.Builder
		for range random.IntN(9) {
			s.WriteRune(letters[random.IntN(len(letters))])
		}
		texts = append(texts, s.String())
	}
	var values []any
	for _, s := range texts {
		values = append(values, map[string]any{"apiVersion": "v1", "kind": "X", "text": s,
			"list": []any{s, []any{s}, map[string]any{"a": s, "b": s}}, "key": map[string]any{s: s},
			"empty": map[string]any{}, "none": []any{}, "nothing": nil, "number": 1.5, "yes": true})
	}
	// More lines than a function may have arguments.
	long := make([]any, 300_000)
	for i := range long {
		long[i] = "a"
	}
	texts = append(texts, "a long list in a list")
	values = append(values, map[string]any{"list": []any{long, map[string]any{"a": long}}})
	input, err := json.Marshal(values)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, "yaml.mjs")
	cmd.Stdin = strings.NewReader(string(input))
	output, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var written []string
	if err := json.Unmarshal(output, &written); err != nil {
		t.Fatal(err)
	}
	for i, text := range written {
		var got any
		if err := yaml.Unmarshal([]byte(text), &got); err != nil || !reflect.DeepEqual(got, values[i]) {
			t.Errorf("%q became %.200v, %v:\n%.2000s", texts[i], got, err, text)
		}
	}
}
