package cli

import (
	"strings"
	"testing"
)

// TestTakeDataDir checks that --data-dir may be before and after the arguments of kubectl, except those for a container.
func TestTakeDataDir(t *testing.T) {
	for args, want := range map[string]string{
		"--data-dir /d get pods":            "/d: get pods",
		"--data-dir=/d get pods":            "/d: get pods",
		"get pods --data-dir /d":            "/d: get pods",
		"get -data-dir /d pods -A":          "/d: get pods -A",
		"exec p --data-dir=/d -- ls -l":     "/d: exec p -- ls -l",
		"exec p -- server --data-dir /d":    "none: exec p -- server --data-dir /d",
		"get pods --data-dir":               ": get pods",
		"--data-dir /c get --data-dir=/d x": "/d: get x",
	} {
		dir, given, rest := takeDataDir(strings.Fields(args))
		if !given {
			dir = "none"
		}
		if got := dir + ": " + strings.Join(rest, " "); got != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}
