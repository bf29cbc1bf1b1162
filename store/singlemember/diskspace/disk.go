// Package diskspace accounts for the free disk space of a member: which changes are admitted when the disk is nearly
// full, and how much space is promised to changes that are not on the disk yet.
package diskspace

import (
	"sync"
	"syscall"
	"time"
)

const (
	// measureInterval is how long a measurement of the free space is used.
	measureInterval = 100 * time.Millisecond
	// MeasureAfter is how many bytes may be promised before the free space is measured again.
	MeasureAfter = 1 << 20
	// changeOverhead is an upper bound for the space that a change takes besides its keys and values.
	changeOverhead = 1 << 10
)

// Disk tracks the free disk space. An admitted change takes its space later: in the log when it is written, in the
// database at its next commit. Until then its space counts as promised.
type Disk struct {
	Dir string
	// Measure returns the bytes that are free for a folder.
	Measure func(dir string) int64

	mu            sync.Mutex // guards what follows
	free          int64
	measuredAt    time.Time // when free was measured
	promisedSince int64     // bytes promised since then
	// The bytes of changes that are in progress, that are applied but not committed to the database file, and that are
	// being committed.
	pending, applied, committing int64
	// reusableBytes is the number of bytes that compaction has freed in the database file while the disk was nearly
	// full. Changes may use them.
	reusableBytes int64
}

// SetMeasure replaces the function that measures the free space. It is for tests.
func (d *Disk) SetMeasure(measure func(dir string) int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.Measure, d.measuredAt = measure, time.Time{}
}

// Available returns the bytes that are free and not promised, and the bytes that are promised.
func (d *Disk) Available() (free, promised int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.measure()
}

// measure does the same as Available; the caller holds the lock.
func (d *Disk) measure() (free, promised int64) {
	if d.measuredAt.IsZero() || time.Since(d.measuredAt) > measureInterval || d.promisedSince >= MeasureAfter {
		d.free, d.measuredAt, d.promisedSince = d.Measure(d.Dir), time.Now(), 0
	}
	promised = d.pending + d.applied + d.committing
	return d.free - promised, promised
}

// Admit promises disk space for a change with so many bytes of keys and values, or returns why there is none. The bytes
// count twice, for the log and for the database. When the change is done, Done must be called with the result.
func (d *Disk) Admit(bytes int, n Need, spaceOf func(free, promised int64) Space) (taken int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := spaceOf(d.measure())
	s.Reuse = d.reusableBytes
	if !s.Admits(n) {
		return 0, s.Refusal(n)
	}
	taken = 2*int64(bytes) + changeOverhead
	if n == Ordinary && s.Free < s.Reserve {
		d.reusableBytes -= taken / 2
	}
	d.pending += taken
	d.promisedSince += taken
	return taken, nil
}

// AddReusable records that more bytes of the database file can be reused, and how many bytes can be reused in total.
func (d *Disk) AddReusable(more, all int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reusableBytes = max(0, min(d.reusableBytes+more, all))
}

// Reusable returns how many bytes of the database file can be reused.
func (d *Disk) Reusable() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reusableBytes
}

// Done is called when an admitted change is done.
func (d *Disk) Done(taken int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending -= taken
	d.applied += taken
}

// StartCommit is called when the database begins a commit. Changes of the commit before are in the file by then.
func (d *Disk) StartCommit() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applied, d.committing = 0, d.applied
	d.measuredAt = time.Time{}
}

// FreeBytes returns the free bytes of the file system of a folder. If that is not known, it returns a large number.
func FreeBytes(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 1 << 40
	}
	return int64(s.Bavail) * s.Bsize
}
