package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestLocks: a lock is given to one waiter after the other, other keys are free, and locks that nobody wants are
// forgotten.
func TestLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts Locks
		leave, err := ts.Lock(t.Context(), "a")
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
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ts.Lock(gone, "a"); !errors.Is(err, context.DeadlineExceeded) {
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
		leave()
		(<-got)()
		if len(ts.locks) != 0 {
			t.Errorf("%d turns are kept for nobody", len(ts.locks))
		}
	})
}
