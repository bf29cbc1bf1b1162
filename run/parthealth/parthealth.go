// Package parthealth tracks which parts of a process work, such as controllers of a server or the proxies of a node,
// and restarts parts that end.
package parthealth

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tracker knows which parts of a process work. The zero value is ready for use.
type Tracker struct {
	mu      sync.Mutex // guards what follows
	failed  map[string]FailedPart
	short   map[string]int // how often a part has failed after it counted as working and before longRun
	runs    map[string]int // the number of the last run of each part
	changed func()         // called when a part has failed or works again; nil for none
}

// FailedPart is a part that does not work now.
type FailedPart struct {
	Name  string
	Err   error
	Since time.Time
}

// WorksAfter is how long a part must run to count as working, unless it reports that itself; a part that ended earlier
// has failed. One that ends later is only restarted, and its next run decides. If it ended before longRun, the next run
// must last twice as long to count: a part that always fails after some seconds does not work either.
const WorksAfter, longRun = 5 * time.Second, time.Minute

// errEnded is the error of a part that has ended without one.
var errEnded = errors.New("it has ended")

// Run runs a part once, and records whether it works. A part that ends with ctx has not failed.
func (h *Tracker) Run(ctx context.Context, name string, part func() error) error {
	number, worksAfter := h.begin(name)
	begin := time.Now()
	works := time.AfterFunc(worksAfter, func() { h.works(name, number) })
	err := part()
	early := works.Stop()
	switch {
	case ctx.Err() != nil:
	case time.Since(begin) >= longRun:
		h.count(name, false)
	case early:
		h.Set(name, cmp.Or(err, errEnded))
	default:
		h.count(name, true)
	}
	return err
}

// RunListener does the same for a part that calls listening as soon as it accepts requests.
func (h *Tracker) RunListener(ctx context.Context, name string, part func(listening func()) error) error {
	err := part(func() { h.Set(name, nil) })
	if ctx.Err() == nil {
		h.Set(name, cmp.Or(err, errEnded))
	}
	return err
}

// begin returns the number of the run of a part, and how long the run must last until the part counts as working.
func (h *Tracker) begin(name string) (number int, worksAfter time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs, h.short = map[string]int{}, map[string]int{}
	}
	h.runs[name]++
	return h.runs[name], min(WorksAfter<<min(h.short[name], 10), longRun)
}

// works records that a part works, unless another run of it has begun meanwhile.
func (h *Tracker) works(name string, number int) {
	h.mu.Lock()
	current := h.runs[name] == number
	h.mu.Unlock()
	if current {
		h.Set(name, nil)
	}
}

// count records whether a run was short: it counted as working and ended before longRun.
func (h *Tracker) count(name string, short bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.short[name]++; !short {
		delete(h.short, name)
	}
}

// Set records why a part does not work; nil if it does.
func (h *Tracker) Set(name string, err error) {
	h.mu.Lock()
	before := h.failed[name]
	if h.failed == nil {
		h.failed = map[string]FailedPart{}
	}
	since := before.Since
	if since.IsZero() {
		since = time.Now()
	}
	if h.failed[name] = (FailedPart{name, err, since}); err == nil {
		delete(h.failed, name)
	}
	changed := h.changed
	h.mu.Unlock()
	if changed != nil && fmt.Sprint(before.Err) != fmt.Sprint(err) {
		changed()
	}
}

// OnChange makes the tracker call f when a part fails or works again.
func (h *Tracker) OnChange(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = f
}

// Failed returns the parts that do not work, sorted by name.
func (h *Tracker) Failed() []FailedPart {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.failed), func(a, b FailedPart) int { return strings.Compare(a.Name, b.Name) })
}
