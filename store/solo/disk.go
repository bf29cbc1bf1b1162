package solo

import (
	"sync"
	"syscall"
	"time"
)

const (
	// lookEvery is how long what is known of the disk is believed, and lookAfter how many bytes may be promised meanwhile.
	lookEvery = 100 * time.Millisecond
	lookAfter = 1 << 20
	// perChange is more than a change takes besides its keys and values.
	perChange = 1 << 10
)

// disk knows how much of the disk is free for changes. A change that was admitted takes its room later: in the log when it is written,
// in the database when that is next committed. Until then it counts as promised.
type disk struct {
	dir string
	// measure returns the bytes that are free for a folder. Tests replace it.
	measure func(dir string) int64

	mu     sync.Mutex // guards what follows
	free   int64
	looked time.Time // when free was measured, by the clock that nobody sets
	since  int64     // bytes promised since then
	// The bytes of changes that are under way, that wait in the database for its next commit, and that are being committed.
	pending, applied, committing int64
	// reuse are bytes that compaction has freed in the database while the disk was nearly full. Changes may take them again.
	reuse int64
}

// available returns the bytes that are free and not promised, and those that are promised.
func (d *disk) available() (free, promised int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.look()
}

// look is available for who holds the lock.
func (d *disk) look() (free, promised int64) {
	if d.looked.IsZero() || time.Since(d.looked) > lookEvery || d.since >= lookAfter {
		d.free, d.looked, d.since = d.measure(d.dir), time.Now(), 0
	}
	promised = d.pending + d.applied + d.committing
	return d.free - promised, promised
}

// admit promises the room of a change with so many bytes of keys and values, if there is some. They are written twice, to the log and to
// the database. When the change has its answer, made is told what admit returned.
func (d *disk) admit(bytes int, n need, spaceOf func(free, promised int64) space) (taken int64, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := spaceOf(d.look())
	s.reuse = d.reuse
	if !s.admits(n) {
		return 0, s.refusal(n)
	}
	taken = 2*int64(bytes) + perChange
	if n == needOrdinary && s.free < s.reserve {
		d.reuse -= taken / 2
	}
	d.pending += taken
	d.since += taken
	return taken, nil
}

// freed says that so many more bytes of the database's file can be used again, and how many can in all.
func (d *disk) freed(more, all int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.reuse = max(0, min(d.reuse+more, all))
}

// reusable returns the bytes of the database that changes may take again.
func (d *disk) reusable() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reuse
}

// made is called when a change that was admitted has its answer.
func (d *disk) made(taken int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pending -= taken
	d.applied += taken
}

// commits is called when the database begins to commit what it has. What was committed before is in its file by then.
func (d *disk) commits() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.applied, d.committing = 0, d.applied
	d.looked = time.Time{}
}

// freeBytes returns the bytes that are free for a folder. A disk that does not say has room.
func freeBytes(dir string) int64 {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil || s.Blocks == 0 {
		return 1 << 40
	}
	return int64(s.Bavail) * s.Bsize
}
