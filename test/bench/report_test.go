package main

import (
	"math"
	"strings"
	"testing"
	"time"
)

func TestMillis(t *testing.T) {
	var samples []time.Duration
	for i := range 100 {
		samples = append(samples, time.Duration(100-i)*time.Millisecond)
	}
	for percent, want := range map[int]float64{0: 1, 50: 50, 90: 90, 99: 99, 100: 100} {
		if got := millis(samples, percent); got != want {
			t.Errorf("p%d = %v, want %v", percent, got, want)
		}
	}
	if got := millis(nil, 50); !math.IsNaN(got) {
		t.Errorf("no samples gave %v, want NaN", got)
	}
}

func TestTableHasRatiosAndGoals(t *testing.T) {
	a, b := newResult("upstream"), newResult("proa")
	a.add("create, 32-way", "/s", 100, higher)
	b.add("create, 32-way", "/s", 350, higher)
	b.add("only ours", "ms", 1, lower)
	got := table([]*result{a, b})
	for _, want := range []string{"| 3.50 ", "at least 3.0", "not measured"} {
		if !strings.Contains(got, want) {
			t.Errorf("table lacks %q:\n%s", want, got)
		}
	}
}
