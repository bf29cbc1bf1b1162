package workload

import "time"

// BackoffDelay returns how long to wait after a number of failures in a row: first after one, doubled with each further one,
// and at most last.
func BackoffDelay(first, last time.Duration, failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(first<<min(failures-1, 20), last)
}
