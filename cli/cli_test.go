package cli

import (
	"slices"
	"testing"

	"proa.dev/cli/command"
)

// TestOnlyKubectlParsesItsOwnArguments holds that every command takes flags in any place, but for those that hand them to kubectl.
func TestOnlyKubectlParsesItsOwnArguments(t *testing.T) {
	raw := slices.DeleteFunc(commands(), func(c command.Command) bool { return !c.Raw })
	if len(raw) != 2 || raw[0].Name != "apply" || raw[1].Name != "kubectl" {
		t.Errorf("commands that parse their own arguments: %v", raw)
	}
}
