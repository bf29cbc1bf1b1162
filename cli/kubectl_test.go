package cli

import (
	"strings"
	"testing"
)

func TestTakeDataDir(t *testing.T) {
	for _, args := range [][]string{{"--data-dir", "/d", "get", "pods"}, {"--data-dir=/d", "get", "pods"}} {
		dir, given, rest := takeDataDir(args)
		if dir != "/d" || !given || strings.Join(rest, " ") != "get pods" {
			t.Errorf("%v: got %s %v %v", args, dir, given, rest)
		}
	}
	if _, given, rest := takeDataDir([]string{"get", "--data-dir", "x"}); given || len(rest) != 3 {
		t.Error("--data-dir is taken although it is not the first argument")
	}
}
