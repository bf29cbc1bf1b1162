package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestLocks checks that a lock is given to one waiter after the other, that locks of other keys do not wait, and that unused
// locks are removed.
func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts Locks
		unlock, err := ts.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := ts.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		start := time.Now()
		if _, err := ts.Lock(t.Context(), "a"); !apierrors.IsInternalError(err) || time.Since(start) != timeout {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		expiring, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ts.Lock(expiring, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		got := make(chan func())
		go func() {
			next, err := ts.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		synctest.Wait()
		unlock()
		(<-got)()
		if len(ts.locks) != 0 {
			t.Errorf("%d unused locks are kept", len(ts.locks))
		}
	})
}
