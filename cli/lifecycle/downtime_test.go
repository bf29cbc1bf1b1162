package lifecycle

import (
	"testing"
	"time"
)

// TestContradictingTimeoutsOfDown checks how long "down" waits with --grace-period and --now, and which values are rejected.
func TestContradictingTimeoutsOfDown(t *testing.T) {
	for _, c := range []struct {
		seconds int
		now     bool
		want    time.Duration
		bad     bool
	}{{-1, false, longestStop, false}, {-1, true, time.Second, false}, {0, false, 0, false}, {7, false, 7 * time.Second, false}, {30, true,
		0, true}, {-5, false, 0, true}} {
		if got, err := stopLimit(c.seconds, c.now); got != c.want || (err != nil) != c.bad {
			t.Errorf("--grace-period %d, --now %v: %v %v", c.seconds, c.now, got, err)
		}
	}
}
