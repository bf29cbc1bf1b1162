package ui

import (
	"os/exec"
	"testing"
)

// TestModules runs the tests of the page's modules that need no browser.
func TestModules(t *testing.T) {
	for _, script := range []string{"documents.mjs", "rows.mjs", "terminal.mjs"} {
		t.Run(script, func(t *testing.T) {
			t.Parallel()
			if output, err := exec.CommandContext(t.Context(), find(t, "node"), script).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}
