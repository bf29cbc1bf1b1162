package pod

import (
	"fmt"
	"testing"
	"time"
)

func TestRestartBackoff(t *testing.T) {
	b, now := backoffs{}, time.Unix(10000, 0)
	var waits []time.Duration
	for range 8 {
		left, _ := b.remaining("c", now, now)
		waits = append(waits, left)
		now = now.Add(left)
		b.advance("c", now, now)
		now = now.Add(time.Second) // it runs for a second
	}
	if got, want := fmt.Sprint(waits), "[0s 10s 20s 40s 1m20s 2m40s 5m0s 5m0s]"; got != want {
		t.Errorf("waits %s, want %s", got, want)
	}
	now = now.Add(11 * time.Minute)
	if left, _ := b.remaining("c", now, now); left != 0 {
		t.Errorf("after a long run it waits %s", left)
	}
}
