package parthealth

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"proa.dev/internal/wait"
)

// Persist runs a part and restarts it with back-off whenever it ends, until ctx ends.
func Persist(ctx context.Context, log *slog.Logger, name string, part func() error) {
	backoff := wait.Backoff{First: 100 * time.Millisecond, Max: 30 * time.Second}
	for {
		began := time.Now()
		err := part()
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > backoff.Max { // it had worked
			backoff.Reset()
		}
		log.ErrorContext(ctx, "a part of the process has ended and is restarted", "part", name, "err", err)
		if backoff.Sleep(ctx) != nil {
			return
		}
	}
}

// Until calls do with a context that ends with ctx, or when end is closed.
func Until(ctx context.Context, end <-chan struct{}, do func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		select {
		case <-end:
			stop()
		case <-ctx.Done():
		}
	})
	return do(ctx)
}
