package parthealth

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestPartsThatFailAreKnown: a part that ends at once is known until it has run for a while again. One that ended after
// a long time is only begun again, and one that ends with the process has not failed.
func TestPartsThatFailAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var h Tracker
		begin, end := time.Now(), make(chan error)
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			got := ""
			for _, p := range h.Failed() {
				got += fmt.Sprintf("%s %s %s\n", p.Name, p.Since.Sub(begin), p.Err)
			}
			if got != want {
				t.Errorf("failing are %q, want %q", got, want)
			}
		}
		run := func() { _ = h.Run(ctx, "dns", func() error { return <-end }) }
		go run()
		time.Sleep(time.Hour)
		end <- errors.New("the connection was lost")
		check("")
		go run()
		end <- errors.New("no socket")
		check("dns 1h0m0s no socket\n")
		go run()
		time.Sleep(time.Second)
		check("dns 1h0m0s no socket\n") // it has begun again, which says nothing yet
		end <- nil
		check("dns 1h0m0s it has ended\n")
		go run()
		time.Sleep(WorksAfter + time.Second)
		check("")
		stop()
		end <- errors.New("with the process")
		check("")
	})
}

// TestPartThatNeedsSecondsToFail: a part that always fails a little later than it counts as working does not work either, and is not called
// working in between. It works again when it has run for longer.
func TestPartThatNeedsSecondsToFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Tracker
		changes := 0
		h.OnChange(func() { changes++ })
		for range 20 {
			_ = h.Run(t.Context(), "mesh", func() error { time.Sleep(WorksAfter + time.Second); return errors.New("no answer") })
		}
		if len(h.Failed()) != 1 || changes != 1 {
			t.Errorf("a part that keeps failing: %v, which has changed %d times, want once", h.Failed(), changes)
		}
		_ = h.Run(t.Context(), "mesh", func() error {
			time.Sleep(2 * longRun)
			synctest.Wait()
			if failed := h.Failed(); len(failed) != 0 {
				t.Errorf("it works again: %v", failed)
			}
			return errors.New("the connection was lost")
		})
		if failed := h.Failed(); len(failed) != 0 {
			t.Errorf("it ended after a long time: %v", failed)
		}
	})
}
