package nettest

import (
	"os/exec"
	"testing"
)

// Readable lists the whole ruleset of the namespace with the nft program of the machine, and fails the test if nft
// cannot parse it: an administrator must be able to read the rules. Without nft nothing is checked.
func (n *NS) Readable(t testing.TB) {
	t.Helper()
	program, err := exec.LookPath("nft")
	if err != nil || n.dropped {
		return
	}
	n.Do(func() {
		if out, err := exec.Command(program, "list", "ruleset").CombinedOutput(); err != nil {
			t.Errorf("nft list ruleset: %v\n%s", err, tail(out, 4000))
		}
	})
}

func tail(text []byte, n int) []byte { return text[max(0, len(text)-n):] }
