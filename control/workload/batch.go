package workload

import "sync"

// atOnce bounds the calls of one batch that run at the same time.
const atOnce = 64

// SlowStart calls do for 0 to n-1 in batches of 1, 2, 4 and so on, each batch side by side. After a batch with a
// failure it stops: what would fail a thousand times fails once. It returns how many succeeded, and the first error.
func SlowStart(n int, do func(i int) error) (succeeded int, err error) {
	for begin, size := 0, 1; begin < n; begin, size = begin+size, 2*size {
		size = min(size, n-begin)
		ok, err := Together(size, func(i int) error { return do(begin + i) })
		succeeded += ok
		if err != nil {
			return succeeded, err
		}
	}
	return succeeded, nil
}

// Together calls do for 0 to n-1, side by side, and waits for all. It returns how many succeeded, and the error of the
// lowest number that has one.
func Together(n int, do func(i int) error) (succeeded int, err error) {
	errs := make([]error, n)
	var wg sync.WaitGroup
	seats := make(chan struct{}, atOnce)
	for i := range n {
		seats <- struct{}{}
		wg.Go(func() {
			defer func() { <-seats }()
			errs[i] = do(i)
		})
	}
	wg.Wait()
	for _, e := range errs {
		switch {
		case e == nil:
			succeeded++
		case err == nil:
			err = e
		}
	}
	return succeeded, err
}
