package parthealth

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestFailedParts checks that a part that ends soon after its start is reported as failed until it has run for WorksAfter. A part
// that ends after a long time is only restarted, and one that ends with the process has not failed.
func TestFailedParts(t *testing.T) {
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
		check("dns 1h0m0s no socket\n") // it runs again, but not for long enough yet
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

// TestPartThatFailsAfterWorksAfter checks that a part that always fails a little later than WorksAfter is reported as failed all
// the time, and no longer when it has run for much longer.
func TestPartThatFailsAfterWorksAfter(t *testing.T) {
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
