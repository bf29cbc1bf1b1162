package run

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Breathe lets the collector of memory run less often while the process is busy, and as always when it is not. A control plane is
// small, so that by the usual rule it would be collected many times a second under load, for the sake of a few megabytes. Who has set
// GOGC or GOMEMLIMIT has decided that already.
func Breathe() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	b := &breath{percent: usually}
	rest := time.AfterFunc(time.Hour, func() { debug.SetGCPercent(b.rest()) })
	rest.Stop()
	afterEach(func() {
		percent, changed := b.collected(time.Now(), live())
		if percent != usually {
			rest.Reset(pauses)
		}
		if changed {
			debug.SetGCPercent(percent)
		}
	})
}

const (
	// usually is how much garbage is let be before a collection, in percent of what lives.
	usually = 100
	// spare bounds the garbage of a busy process, in bytes and in percent of what lives.
	spare, most = 128 << 20, 400
	// busy is how long collections have to follow each other before a process counts as busy: its start does not.
	busy = 2 * time.Second
	// follows is within which time one collection follows another, and pauses after which time without any it is quiet again.
	follows, pauses = time.Second, 10 * time.Second
)

// breath decides how often to collect.
type breath struct {
	mu          sync.Mutex // guards what follows
	since, last time.Time
	percent     int
}

// collected is told of a collection and what lived through it. It returns the percentage from now on, and whether it is another one.
func (b *breath) collected(now time.Time, live int64) (percent int, changed bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	near := follows
	if b.percent != usually {
		near = pauses
	}
	if now.Sub(b.last) > near {
		b.since = now
	}
	b.last = now
	if now.Sub(b.since) < busy {
		return b.percent, false
	}
	was := b.percent
	b.percent = int(min(most, max(usually, spare*100/max(live, 1))))
	return b.percent, b.percent != was
}

// rest says that it is quiet.
func (b *breath) rest() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.percent = usually
	return usually
}

// live is how many bytes lived through the last collection.
func live() int64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(s)
	if s[0].Value.Kind() != metrics.KindUint64 {
		return spare
	}
	return int64(min(s[0].Value.Uint64(), 1<<62))
}

// afterEach calls f after each collection: something that nobody holds is found by each of them.
func afterEach(f func()) {
	var arm func(*[64]byte)
	arm = func(x *[64]byte) {
		runtime.SetFinalizer(x, func(x *[64]byte) {
			f()
			arm(x)
		})
	}
	arm(new([64]byte))
}
