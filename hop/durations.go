package hop

import (
	"iter"
	"math"
	"time"
)

const (
	// NativeSchema is the schema of the native buckets of Durations: each bound is the eighth root of two times the one before.
	NativeSchema = 3
	// eighths is the number of native buckets up to twice a duration.
	eighths = 1 << NativeSchema
	// shortest and longest are the exponents of two, in seconds, between which durations are told apart: from a nanosecond to
	// nine hours.
	shortest, longest = -30, 15
	classicBounds     = 12
)

// Durations is the distribution of the times at one hop, as a Prometheus histogram: in classic buckets, and in native ones.
// Counting is cheaper than in a histogram of the Prometheus client by a factor of ten, because the Recorder is locked anyway.
type Durations struct {
	Count   uint64
	Seconds float64 // the sum; nanoseconds in 64 bits would not hold the times that a node may claim
	classic [classicBounds]uint64
	native  [(longest - shortest) * eighths]uint32
}

// classicBound returns the upper bound of a classic bucket. Hops within the server take microseconds, those on nodes seconds.
func classicBound(i int) time.Duration { return 10 * time.Microsecond << (2 * i) }

// Classic yields the upper bounds of the classic buckets with the number of durations up to that bound.
func (d *Durations) Classic() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		sum := uint64(0)
		for i, n := range d.classic {
			if sum += n; !yield(classicBound(i), sum) {
				return
			}
		}
	}
}

// Native yields the native buckets that are not empty, by their index.
func (d *Durations) Native() iter.Seq2[int, uint32] {
	return func(yield func(int, uint32) bool) {
		for i, n := range d.native {
			if n > 0 && !yield(i+shortest*eighths+1, n) {
				return
			}
		}
	}
}

// observe counts a duration, which is positive.
func (d *Durations) observe(took time.Duration) {
	seconds := took.Seconds()
	d.Count++
	d.Seconds += seconds
	for i := range classicBounds {
		if took <= classicBound(i) {
			d.classic[i]++
			break
		}
	}
	// The bucket of index i has the durations above 2^((i-1)/8) seconds and up to 2^(i/8).
	fraction, exponent := math.Frexp(seconds)
	i := (exponent-1-shortest)*eighths + eighthOf(fraction)
	d.native[min(max(i, 0), len(d.native)-1)]++
}

// eighthOf returns in which of the native buckets above a half a fraction is: that above 2^(k/8)/2, for k from 0 to 7. A half is
// the upper bound of the bucket below.
func eighthOf(fraction float64) int {
	switch {
	case fraction > 0.9170040432046711:
		return 7
	case fraction > 0.8408964152537144:
		return 6
	case fraction > 0.7711054127039704:
		return 5
	case fraction > 0.7071067811865475:
		return 4
	case fraction > 0.6484197773255048:
		return 3
	case fraction > 0.5946035575013605:
		return 2
	case fraction > 0.5452538663326288:
		return 1
	case fraction > 0.5:
		return 0
	}
	return -1
}
