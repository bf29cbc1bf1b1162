package pod

import (
	"testing"
	"time"
)

func TestDescribeEnd(t *testing.T) {
	for _, c := range []struct {
		stop        stopping
		exitCode    int32
		isGraceOver bool
		want        string
	}{
		{stopping{grace: 30 * time.Second}, 0, false, "ended after SIGTERM, with exit code 0"},
		{stopping{grace: 30 * time.Second, signal: "SIGUSR1"}, 143, false, "ended after SIGUSR1, with exit code 143"},
		{stopping{grace: 30 * time.Second}, 137, true, "killed after the grace period of 30 s"},
		{stopping{grace: 0}, 137, true, "killed after the grace period of 2 s"},
		{stopping{grace: 30 * time.Second}, 137, false, "ended after SIGTERM, with exit code 137"}, // somebody else killed it
		{stopping{grace: 30 * time.Second}, 0, true, "ended after SIGTERM, with exit code 0"},
	} {
		if got := describeEnd(c.stop, c.exitCode, c.isGraceOver); got != c.want {
			t.Errorf("describeEnd(%+v, %d, %v) = %q, want %q", c.stop, c.exitCode, c.isGraceOver, got, c.want)
		}
	}
}
