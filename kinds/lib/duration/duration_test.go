package duration_test

import (
	"math"
	"testing"
	"time"

	"proa.dev/kinds/lib/duration"
)

func TestSeconds(t *testing.T) {
	for n, want := range map[int64]time.Duration{0: 0, 30: 30 * time.Second, -5: -5 * time.Second,
		3_000_000_000: 3_000_000_000 * time.Second} {
		if got := duration.FromSeconds(n); got != want {
			t.Errorf("%d: %v, want %v", n, got, want)
		}
	}
	for _, n := range []int64{10_000_000_000, math.MaxInt64} {
		if got := duration.FromSeconds(n); got < 140*365*24*time.Hour || got+time.Hour < got {
			t.Errorf("%d seconds are %v", n, got)
		}
		if got := duration.FromSeconds(-n); got > -140*365*24*time.Hour {
			t.Errorf("%d seconds are %v", -n, got)
		}
	}
}
