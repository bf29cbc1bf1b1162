package tracesource

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// TestOneUserDoesNotTakeAllTraces checks that whoever asks for many traces at once, which take long, does not make others wait.
func TestOneUserDoesNotTakeAllTraces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLimits(nil)
		for range 100 {
			go func() {
				leave, err := l.enter(t.Context(), "mallory")
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(time.Minute)
				leave()
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := len(l.slots); n != maxTracesOfUser {
			t.Errorf("%d traces are made for one user", n)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		leave, err := l.enter(ctx, "alice")
		if err != nil || ctx.Err() != nil {
			t.Fatalf("another user waits: %v", err)
		}
		leave()
		if _, err := l.enter(ctx, "mallory"); !apierrors.IsTooManyRequests(err) {
			t.Errorf("the request that is not answered in time: %v", err)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if len(l.users) != 0 || len(l.slots) != 0 {
			t.Errorf("%d users and %d traces are left", len(l.users), len(l.slots))
		}
	})
}
