package controllers

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEveryControllerHasPerturbedScript checks that each folder with a controller has a script that runs under all perturbations: one
// that does not begin with "$ exact".
func TestEveryControllerHasPerturbedScript(t *testing.T) {
	declares, runs := regexp.MustCompile(`control\.Controller ?\{`), regexp.MustCompile(`controltest\.Scripts(?:OfServer)?\(t, "([^"]+)"`)
	patterns := captures(t, ".", runs)
	folders, err := filepath.Glob("../../control/*")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, folder := range append(folders, "../../node/simulate") {
		if filepath.Base(folder) == "controltest" || !inFolder(t, folder, false, declares) {
			continue
		}
		found++
		perturbed := 0
		for _, pattern := range patterns {
			if !strings.HasPrefix(pattern, folder+"/") {
				continue
			}
			scripts, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range scripts {
				if first := firstCommand(t, s); first != "" && first != "$ exact" {
					perturbed++
				}
			}
		}
		if perturbed == 0 {
			t.Errorf("%s has a controller, but no script of it runs with stale views, missed events and crashes: add one that does not begin with \"$ exact\"", filepath.Base(folder))
		}
	}
	if found < 30 {
		t.Errorf("only %d folders have controllers; does this test still know how to find them?", found)
	}
}

// sources returns the Go files of a folder, either tests or non-tests.
func sources(t *testing.T, folder string, tests bool) (out []string) {
	files, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if strings.HasSuffix(f, "_test.go") == tests {
			text, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, string(text))
		}
	}
	return out
}

func inFolder(t *testing.T, folder string, tests bool, what *regexp.Regexp) bool {
	for _, text := range sources(t, folder, tests) {
		if what.MatchString(text) {
			return true
		}
	}
	return false
}

// captures returns the first group of each match in the tests of a folder.
func captures(t *testing.T, folder string, what *regexp.Regexp) (out []string) {
	for _, text := range sources(t, folder, true) {
		for _, m := range what.FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
	}
	return out
}

// firstCommand returns the first command of a script, or "" if the file is none.
func firstCommand(t *testing.T, file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "$ ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// settle lets a second of virtual time pass, and then waits until nothing happens any more. Without the second, what waits for a
// timer would count as settled: a view that is behind asks the store for its progress after 2 ms.
func settle() {
	time.Sleep(time.Second)
	synctest.Wait()
}
