package goprocess

import (
	"fmt"
	"testing"
)

func TestIdleDetector(t *testing.T) {
	const work, idle = idleCPUTime + 1, idleCPUTime
	d := idleDetector{checks: checksBetweenCollections}
	due := map[int]bool{}
	for check := range 40 {
		spent := idle
		// The process works at the start, and again when the next collection would be due.
		if check < 2 || check > 12 && check < 17 {
			spent = work
		}
		if d.isDue(d.used + spent) {
			due[check] = true
		}
	}
	if want := "map[2:true 17:true 29:true]"; fmt.Sprint(due) != want {
		t.Errorf("a collection was due at the checks %v, want %s", due, want)
	}
}

func TestIdleCollectionsAreWorthwhile(t *testing.T) {
	var collector idleCollector
	for _, c := range []struct {
		name            string
		allocated, live uint64
		want            bool
	}{
		{"after the start", 30 << 20, 10 << 20, true},
		{"nothing allocated since", 31 << 20, 10 << 20, false},
		{"some work since", 40 << 20, 10 << 20, true},
		{"a large heap", 400 << 20, 300 << 20, false},
		{"a heap that has become small", 401 << 20, 10 << 20, true},
	} {
		if got := collector.isWorthwhile(c.allocated, c.live); got != c.want {
			t.Errorf("%s: got %t, want %t", c.name, got, c.want)
		}
	}
}
