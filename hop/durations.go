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
	Sum     time.Duration
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
	d.Count++
	d.Sum += took
	for i := range classicBounds {
		if took <= classicBound(i) {
			d.classic[i]++
			break
		}
	}
	// The bucket of index i has the durations above 2^((i-1)/8) seconds and up to 2^(i/8).
	fraction, exponent := math.Frexp(took.Seconds())
	i := (exponent - 1 - shortest) * eighths
	for k := range eighths {
		if fraction > fractionOf(k) {
			i = (exponent-1-shortest)*eighths + k
		}
	}
	if fraction == 0.5 { // a power of two is the upper bound of the bucket below
		i = (exponent-1-shortest)*eighths - 1
	}
	d.native[min(max(i, 0), len(d.native)-1)]++
}

// fractionOf returns the lower bound of the k-th bucket above a half: 2^(k/8)/2.
func fractionOf(k int) float64 {
	return [...]float64{0.5, 0.5452538663326288, 0.5946035575013605, 0.6484197773255048, 0.7071067811865475, 0.7711054127039704,
		0.8408964152537144, 0.9170040432046711}[k]
}
