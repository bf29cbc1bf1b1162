package hop

import (
	"sync/atomic"
	"time"
)

// Budget bounds how often something happens: once in an interval in the long run, and faster for as long as a burst. The zero value is
// full. Callers may share it; it never blocks, and takes no lock.
type Budget struct {
	spent atomic.Int64 // the time up to which the budget is spent, in nanoseconds
}

// Has reports whether Spend would return true now.
func (b *Budget) Has(interval, burst time.Duration, now time.Time) bool {
	_, ok := spentAfter(b.spent.Load(), interval, burst, now)
	return ok
}

// Spend takes one interval from the budget, and reports whether there was as much.
func (b *Budget) Spend(interval, burst time.Duration, now time.Time) bool {
	for {
		have := b.spent.Load()
		next, ok := spentAfter(have, interval, burst, now)
		if !ok || b.spent.CompareAndSwap(have, next) {
			return ok
		}
	}
}

// spentAfter returns up to which time a budget is spent after one more interval, if it has as much.
func spentAfter(spent int64, interval, burst time.Duration, now time.Time) (next int64, ok bool) {
	at := now.UnixNano()
	next = max(spent, at) + int64(interval)
	switch ahead := next - at; {
	case ahead <= int64(burst):
		return next, true
	case ahead <= 2*int64(burst):
		return 0, false
	}
	return at, true // the clock was set back
}
