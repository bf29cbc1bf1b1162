package watch

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestLagOfARestoredStore has a store that is restored from a backup while the cache is behind: its revisions are lower then, and what was
// written before is not waited for.
func TestLagOfARestoredStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		c.rev.Store(900_000)
		c.Wrote(1_000_000)
		time.Sleep(time.Second)
		if c.Lag() != time.Second {
			t.Errorf("it is %s behind", c.Lag())
		}
		begin := time.Now()
		c.rev.Store(500) // of the backup
		c.lag.loaded(begin)
		c.Wrote(700)
		begin = time.Now()
		c.rev.Store(700)
		if c.HoldBack(t.Context()); time.Since(begin) != 0 || c.Lag() != 0 {
			t.Errorf("a writer waited for %s; the lag is %s", time.Since(begin), c.Lag())
		}
		c.lag.loaded(time.Now().Add(-time.Minute))
		c.Wrote(800)
		if time.Sleep(time.Second); c.Lag() == 0 {
			t.Error("a write after the load is forgotten")
		}
	})
}
