// Package goprocess holds what concerns the Go process as a whole: memory that is returned to the system at idle, and
// the logs and metrics of libraries that have global ones.
package goprocess

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"syscall"
	"time"
)

const (
	// idleCheckInterval is the time between checks whether the process is idle.
	idleCheckInterval = 5 * time.Second
	// idleCPUTime is the most processor time that an idle process uses within idleCheckInterval.
	idleCPUTime = idleCheckInterval / 20
	// checksBetweenCollections is the least number of checks between two collections.
	checksBetweenCollections = int(time.Minute / idleCheckInterval)
)

// FreeMemoryWhenIdle returns garbage to the operating system while the process is idle, until ctx ends. Without it the garbage of
// work that is over, such as the start, stays until as much again has been allocated, which takes very long in an idle process.
func FreeMemoryWhenIdle(ctx context.Context) {
	tick := time.NewTicker(idleCheckInterval)
	defer tick.Stop()
	var c idleCollector
	for d := (idleDetector{checks: checksBetweenCollections}); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var u syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil && d.isDue(time.Duration(u.Utime.Nano()+u.Stime.Nano())) {
			c.collect()
		}
	}
}

// idleDetector decides from the processor time of the process when a collection is due.
type idleDetector struct {
	used   time.Duration // the processor time at the last check
	checks int           // the number of checks since the last collection
}

// isDue takes the processor time that the process has used so far, and tells whether the process is idle and the last collection
// long enough ago.
func (d *idleDetector) isDue(used time.Duration) bool {
	idle := used-d.used <= idleCPUTime
	d.used = used
	d.checks++
	if !idle || d.checks < checksBetweenCollections {
		return false
	}
	d.checks = 0
	return true
}

// idleCollector collects garbage if that is likely to free memory and is little work.
type idleCollector struct{ allocated uint64 } // the bytes allocated until the last collection

const (
	// minGarbage is how much must have been allocated since the last collection to be worth another.
	minGarbage = 4 << 20
	// maxIdleHeap is the live heap above which a collection is too much work for an idle process.
	maxIdleHeap = 256 << 20
)

func (c *idleCollector) collect() {
	now := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}}
	metrics.Read(now)
	if c.isWorthwhile(now[0].Value.Uint64(), now[1].Value.Uint64()) {
		debug.FreeOSMemory()
	}
}

// isWorthwhile takes the bytes allocated since the process began, and those in use.
func (c *idleCollector) isWorthwhile(allocated, live uint64) bool {
	if allocated-c.allocated < minGarbage || live > maxIdleHeap {
		return false
	}
	c.allocated = allocated
	return true
}
