// Package textcase runs tests that are texts. A file holds cases: a line with a mark and a name begins one, and what stands
// before the first is left alone. With -update the outcomes are written into the files; read them before you commit them.
// Only tests import it.
package textcase

import (
	"flag"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what tests come to into their texts")

// Update says that outcomes are to be written and not to be checked.
func Update() bool { return *update }

// Play runs the cases of all files that a pattern matches; mark is how they begin, "== " say. play gets the text of a case
// and returns it as it should be: with the outcomes.
func Play(t *testing.T, pattern, mark string, play func(t *testing.T, body string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no file matches %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split("\n"+string(text), "\n"+mark)
		if len(parts) < 2 {
			t.Errorf("%s has no case", file)
		}
		out := strings.TrimPrefix(parts[0], "\n")
		for _, part := range parts[1:] {
			name, body, _ := strings.Cut(part, "\n")
			got := body
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+name, func(t *testing.T) {
				got = play(t, body)
				if !*update && strings.TrimSpace(got) != strings.TrimSpace(body) {
					t.Errorf("got\n%s\nwant\n%s", got, body)
				}
			})
			if out != "" {
				out = strings.TrimRight(out, "\n") + "\n\n"
			}
			out += mark + name + "\n" + got
		}
		if *update {
			if err := os.WriteFile(file, []byte(strings.TrimRight(out, "\n")+"\n"), 0o644); err != nil { //nolint:gosec // G306: a file of the repository
				t.Fatal(err)
			}
		}
	}
}

// Decide runs cases of the mark "== " that are a question, a line with a sign such as "=>", and the answer.
func Decide(t *testing.T, pattern, sign string, decide func(t *testing.T, in string) string) {
	t.Helper()
	Play(t, pattern, "== ", func(t *testing.T, body string) string {
		t.Helper()
		in, _, found := strings.Cut("\n"+body, "\n"+sign)
		if !found {
			t.Fatalf("no line %q in\n%s", sign, body)
		}
		in = strings.TrimPrefix(in, "\n")
		if in != "" {
			in += "\n"
		}
		return in + sign + "\n" + strings.TrimRight(decide(t, in), "\n") + "\n"
	})
}

// Lines yields the two sides of the lines of a file with an arrow "->" in them. A line that begins with # is a remark.
func Lines(t *testing.T, file string) iter.Seq2[string, string] {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(string, string) bool) {
		for line := range strings.Lines(string(text)) {
			left, right, _ := strings.Cut(line, "->")
			if !strings.HasPrefix(line, "#") && !yield(strings.TrimSpace(left), strings.TrimSpace(right)) {
				return
			}
		}
	}
}
