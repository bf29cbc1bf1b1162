// Package parallel calls a function for many objects concurrently, for controllers that make many writes at once.
package parallel

import "sync"

// ForEach calls do for 0 to n-1, at most limit calls at the same time, and waits for all. It returns their errors by number.
func ForEach(n, limit int, do func(i int) error) []error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(i)
		})
	}
	wg.Wait()
	return errs
}
