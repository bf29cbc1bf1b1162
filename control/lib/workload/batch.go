package workload

import "proa.dev/control/lib/parallel"

// maxParallel bounds the concurrent calls of one batch.
const maxParallel = 64

// SlowStart calls do for 0 to n-1 in batches of 1, 2, 4 and so on, the calls of a batch concurrently. It stops after a batch
// with a failure, so that a write which would fail a thousand times is tried once. It returns how many calls succeeded, and
// the first error.
func SlowStart(n int, do func(i int) error) (succeeded int, err error) {
	for begin, size := 0, 1; begin < n; begin, size = begin+size, 2*size {
		size = min(size, n-begin)
		ok, err := Parallel(size, func(i int) error { return do(begin + i) })
		succeeded += ok
		if err != nil {
			return succeeded, err
		}
	}
	return succeeded, nil
}

// Parallel calls do for 0 to n-1 concurrently, and waits for all. It returns how many calls succeeded, and the error of the
// lowest number that failed.
func Parallel(n int, do func(i int) error) (succeeded int, err error) {
	for _, e := range parallel.ForEach(n, maxParallel, do) {
		switch {
		case e == nil:
			succeeded++
		case err == nil:
			err = e
		}
	}
	return succeeded, err
}
