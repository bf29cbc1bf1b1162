package keymutex

import (
	"sync"
	"testing"
)

// TestLock checks that one caller at a time holds a key, whatever other keys it locks, and that unused keys are removed.
func TestLock(t *testing.T) {
	var m Mutex
	var wg sync.WaitGroup
	n := 0
	for i := range 100 {
		wg.Go(func() {
			keys := []string{"a", "b"}
			if i%2 == 0 {
				keys = []string{"b", "c", "b"}
			}
			defer m.Lock(keys...)()
			n++ // the race detector reports a second holder of b
		})
	}
	wg.Wait()
	if n != 100 || len(m.held) != 0 {
		t.Errorf("%d of 100 callers held the lock, and %d keys are left", n, len(m.held))
	}
}
