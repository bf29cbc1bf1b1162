// Package nodetest runs test cases from text files: an input and the expected output. It also starts container runtimes
// for tests. Only tests import it.
package nodetest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Cases runs every case of the files that match a pattern. A case is a line "=== title", the input, a line "---" and
// the output. If PROA_UPDATE is set, the outputs are written instead of compared; read them before you commit them.
func Cases(t *testing.T, pattern string, run func(t *testing.T, input string) string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases in %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, rest, _ := strings.Cut("\n"+string(text), "\n=== ")
		var out strings.Builder
		out.WriteString(strings.TrimPrefix(head+"\n", "\n"))
		for block := range strings.SplitSeq(rest, "\n=== ") {
			title, body, _ := strings.Cut(block, "\n")
			input, want, _ := strings.Cut(body, "\n---\n")
			t.Run(strings.TrimSuffix(filepath.Base(file), ".txt")+"/"+title, func(t *testing.T) {
				got := strings.TrimSpace(want)
				// A case that fails halfway stays as it is.
				defer func() {
					out.WriteString("=== " + title + "\n" + strings.TrimRight(input, "\n") + "\n---\n" + got + "\n\n")
				}()
				got = strings.TrimSpace(run(t, input))
				if os.Getenv("PROA_UPDATE") == "" && got != strings.TrimSpace(want) {
					t.Errorf("got:\n%s\n\nwant:\n%s", got, strings.TrimSpace(want))
				}
			})
		}
		if os.Getenv("PROA_UPDATE") != "" {
			if err := os.WriteFile(file, []byte(strings.TrimSpace(out.String())+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}
