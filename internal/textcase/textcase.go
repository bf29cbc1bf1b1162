// Package textcase runs tests from text files. A file has cases: a line with a mark and a name begins one, and text before the first is
// ignored. With -update the actual outcomes are written into the files; review them before you commit them. Only tests import it.
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

// Update reports whether outcomes are written to the files instead of being checked.
func Update() bool { return *update }

// Play runs the cases of all files that a pattern matches; mark is the prefix of the line that begins a case, such as
// "== ". play gets the text of a case and returns it with the actual outcomes.
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
			if err := os.WriteFile(file, []byte(strings.TrimRight(out, "\n")+"\n"), //nolint:gosec // G306: a file of the repository
				0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Check runs cases of the mark "== " that contain their expectations; check fails the test if one is not met.
func Check(t *testing.T, pattern string, check func(t *testing.T, lines []string)) {
	t.Helper()
	Play(t, pattern, "== ", func(t *testing.T, body string) string {
		t.Helper()
		check(t, strings.Split(strings.TrimSpace(body), "\n"))
		return body
	})
}

// Script runs a case that consists of commands, each a line that begins with "$ " and is followed by its input or its
// output. do returns the output, and false for a command that has none and keeps its input.
func Script(body string, do func(command, input string) (output string, prints bool)) string {
	parts := strings.Split("\n"+body, "\n$ ")
	out := strings.TrimPrefix(parts[0], "\n")
	for _, part := range parts[1:] {
		command, input, _ := strings.Cut(part, "\n")
		if output, prints := do(command, input); prints {
			input = output
		}
		if out != "" {
			out = strings.TrimRight(out, "\n") + "\n"
		}
		out += "$ " + command + "\n" + input
	}
	return strings.TrimRight(out, "\n") + "\n"
}

// Stories runs the files that a pattern matches. Every line is a command, empty, or a comment that begins with #; the
// indented lines below a command are its expected output. begin starts a story, and returns the function that runs
// its commands.
func Stories(t *testing.T, pattern string, begin func(t *testing.T) (do func(words []string) string)) {
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
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			got := story(string(text), begin(t))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil { //nolint:gosec // G306: a file of the repository
					t.Fatal(err)
				}
			} else if got != string(text) {
				t.Errorf("got\n%s\nwant\n%s", got, text)
			}
		})
	}
}

func story(text string, do func(words []string) string) string {
	var got strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		got.WriteString(line)
		if strings.TrimSpace(line) == "" || line[0] == '#' {
			continue
		}
		for out := range strings.Lines(do(strings.Fields(line))) {
			got.WriteString("  " + out)
		}
	}
	return got.String()
}

// Options yields the keys and values of words of the form KEY=VALUE; a word without a value has an empty one.
func Options(words []string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, w := range words {
			if key, value, _ := strings.Cut(w, "="); !yield(key, value) {
				return
			}
		}
	}
}

// Decide runs cases of the mark "== " that are an input, a line with a sign such as "=>", and the expected output.
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

// Lines yields the two sides of the lines of a file with an arrow "->" in them. A line that begins with # is a
// comment.
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
