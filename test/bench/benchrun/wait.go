package benchrun

import (
	"context"
	"fmt"
	"time"

	"proa.dev/internal/wait"
)

// WaitUntil calls ready every few milliseconds until it returns true, or the limit has passed.
func WaitUntil(ctx context.Context, limit time.Duration, ready func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		ok, err := ready()
		if ok || err != nil {
			return err
		}
		if err := wait.Sleep(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("not within %s: %w", limit, err)
		}
	}
}
