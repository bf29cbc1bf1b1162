package clusterstatus

import (
	"bytes"
	"strings"
	"testing"

	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
)

// TestFailingStartHooksAreNamed checks that all start hooks that pass share one row, and that each one that fails has its own.
func TestFailingStartHooksAreNamed(t *testing.T) {
	body := "[+]ping ok\n[+]poststarthook/a ok\n[-]poststarthook/rbac/bootstrap-roles failed: not yet\n[-]autoregister-completion failed: never\n[+]poststarthook/b ok\n"
	s := &Status{Running: true, Checks: localcluster.ParseChecks([]byte(body))}
	var out bytes.Buffer
	if err := s.print(&command.Env{Out: &out}, ""); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"ping ok", "poststarthook/rbac/bootstrap-roles failed: not yet", "autoregister-completion failed: never",
		"start ok, 2 checks"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, out.String())
		}
	}
	if strings.Contains(text, "poststarthook/a") || strings.Contains(text, "Everything is well") {
		t.Errorf("got\n%s", out.String())
	}
}
