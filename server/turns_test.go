package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestTurns holds a turn while others want it, and others do not.
func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ts turns
		leave, err := ts.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := ts.take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		start := time.Now()
		if _, err := ts.take(t.Context(), "a"); !apierrors.IsInternalError(err) || time.Since(start) != turnWait {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := ts.take(gone, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		got := make(chan func())
		go func() {
			next, err := ts.take(t.Context(), "a")
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		synctest.Wait()
		leave()
		(<-got)()
		if len(ts.queue) != 0 {
			t.Errorf("%d turns are kept for nobody", len(ts.queue))
		}
	})
}
