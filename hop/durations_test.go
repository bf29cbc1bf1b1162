package hop

import (
	"math"
	"testing"
	"time"
)

// TestDurationsAreInTheirBuckets: each duration is in the native bucket whose bounds are around it, and in the classic one.
func TestDurationsAreInTheirBuckets(t *testing.T) {
	for _, took := range []time.Duration{1, 2, 17, 999, time.Microsecond, 9999, 10 * time.Microsecond, 10*time.Microsecond + 1,
		time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, 500*time.Millisecond + 1, 700 * time.Millisecond, time.Second,
		1500 * time.Millisecond, 2 * time.Second, time.Minute, 9 * time.Hour} {
		var d Durations
		d.observe(took)
		buckets := 0
		for i, n := range d.Native() {
			buckets++
			low, high := math.Exp2(float64(i-1)/eighths), math.Exp2(float64(i)/eighths)
			if s := took.Seconds(); n != 1 || s <= low*(1-1e-12) || s > high*(1+1e-12) {
				t.Errorf("%v is in bucket %d, from %v to %v", took, i, low, high)
			}
		}
		if buckets != 1 || d.Count != 1 || d.Seconds != took.Seconds() {
			t.Errorf("%v: %d buckets, %d counted, sum %v", took, buckets, d.Count, d.Seconds)
		}
		for bound, n := range d.Classic() {
			if (n == 1) != (took <= bound) {
				t.Errorf("%v: %d up to %v", took, n, bound)
			}
		}
	}
	for _, took := range []time.Duration{100 * time.Hour, math.MaxInt64} {
		var d Durations
		d.observe(took) // beyond the last bucket
		if d.observe(took); d.Seconds != 2*took.Seconds() {
			t.Errorf("the sum of two times %v is %v", took, d.Seconds)
		}
		for i := range d.Native() {
			if i != longest*eighths {
				t.Errorf("%v is in bucket %d", took, i)
			}
		}
	}
}
