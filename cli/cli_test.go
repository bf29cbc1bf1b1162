package cli

import (
	"slices"
	"testing"

	"proa.dev/cli/command"
)

// TestOnlyKubectlParsesItsOwnArguments holds that every other command takes flags in any place.
func TestOnlyKubectlParsesItsOwnArguments(t *testing.T) {
	raw := slices.DeleteFunc(commands(), func(c command.Command) bool { return !c.Raw })
	if len(raw) != 1 || raw[0].Name != "kubectl" {
		t.Errorf("commands that parse their own arguments: %v", raw)
	}
}
