package ui

import (
	"os/exec"
	"testing"
)

// TestScreen holds that the output of a shell becomes the text that a terminal shows, and that fast output is bounded.
func TestScreen(t *testing.T) {
	output, err := exec.CommandContext(t.Context(), find(t, "node"), "screen.mjs").CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, output)
	}
}
