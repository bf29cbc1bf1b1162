package run

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestBreath plays collections: the second, and the megabytes that live; what is decided stands behind the arrow, with a star if
// that is news. "rest" is a while without any.
func TestBreath(t *testing.T) {
	for what, script := range map[string]string{
		"a start, and the quiet after it":       "0 15 -> 100; 0.1 15 -> 100; 0.2 15 -> 100; 60 15 -> 100",
		"busy":                                  "0 15 -> 100; 0.9 15 -> 100; 1.8 15 -> 100; 2.7 15 -> 400*; 6 15 -> 400; 15 15 -> 400",
		"more lives":                            "0 15 -> 100; 1 15 -> 100; 2 15 -> 400*; 3 64 -> 200*; 4 300 -> 100*; 5 300 -> 100",
		"less lives":                            "0 300 -> 100; 1 300 -> 100; 2 300 -> 100; 3 15 -> 400*",
		"a rest that was too early":             "0 15 -> 100; 1 15 -> 100; 2 15 -> 400*; rest; 3 15 -> 400*",
		"quiet, and a first collection after":   "0 15 -> 100; 1 15 -> 100; 2 15 -> 400*; rest; 60 15 -> 100; 61 0 -> 100",
		"collections that do not follow others": "0 15 -> 100; 5 15 -> 100; 10 15 -> 100; 15 15 -> 100",
	} {
		b, start := &breath{percent: usually}, time.Now()
		for step := range strings.SplitSeq(script, "; ") {
			if step == "rest" {
				if got := b.rest(); got != usually {
					t.Errorf("%s: a rest is %d", what, got)
				}
				continue
			}
			given, want, _ := strings.Cut(step, " -> ")
			var at float64
			var live int64
			if _, err := fmt.Sscan(given, &at, &live); err != nil {
				t.Fatal(err)
			}
			percent, changed := b.collected(start.Add(time.Duration(at*float64(time.Second))), live<<20)
			if got := fmt.Sprint(percent) + map[bool]string{true: "*"}[changed]; got != want {
				t.Errorf("%s: %s, got %s", what, step, got)
			}
		}
	}
}

func TestAfterEach(t *testing.T) {
	ran := make(chan struct{}, 1)
	afterEach(func() {
		select {
		case ran <- struct{}{}:
		default:
		}
	})
	for range 3 {
		runtime.GC()
		<-ran
	}
}
