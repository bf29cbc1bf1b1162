package cli

import (
	"slices"
	"testing"

	"proa.dev/cli/command"
)

// TestCommandsThatParseTheirArguments checks that only the commands that pass their arguments to kubectl parse flags themselves.
func TestCommandsThatParseTheirArguments(t *testing.T) {
	raw := slices.DeleteFunc(commands(), func(c command.Command) bool { return !c.Raw })
	if len(raw) != 2 || raw[0].Name != "apply" || raw[1].Name != "kubectl" {
		t.Errorf("commands that parse their own arguments: %v", raw)
	}
}
