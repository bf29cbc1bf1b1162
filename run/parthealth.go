package run

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

// PartHealth knows which parts of a process work: the loops of a server, or the parts of a node. The zero value is ready for use.
type PartHealth struct {
	mu      sync.Mutex // guards what follows
	failed  map[string]FailedPart
	short   map[string]int // how often a part has failed after it counted as working and before longRun
	runs    map[string]int // the number of the last run of each part
	changed func()         // called when a part has failed or works again; nil for nobody
}

// FailedPart is a part that does not work now.
type FailedPart struct {
	Name  string
	Err   error
	Since time.Time
}

// WorksAfter is how long a part runs before it counts as working, unless it says so itself, and a part that ended earlier than that has failed.
// One that ends later is only begun again: its next run tells. If it failed before longRun, the next one must last twice as long to count: a
// part that always needs some seconds to fail does not work either.
const WorksAfter, longRun = 5 * time.Second, time.Minute

// errEnded is why a part does not work that has ended without an error.
var errEnded = errors.New("it has ended")

// Run runs a part once, and notes whether it works. A part that ends with ctx has not failed.
func (h *PartHealth) Run(ctx context.Context, name string, part func() error) error {
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

// RunListener does the same for a part that calls listening as soon as it can be asked.
func (h *PartHealth) RunListener(ctx context.Context, name string, part func(listening func()) error) error {
	err := part(func() { h.Set(name, nil) })
	if ctx.Err() == nil {
		h.Set(name, cmp.Or(err, errEnded))
	}
	return err
}

// begin returns the number of the run of a part that begins, and how long it must last until the part counts as working.
func (h *PartHealth) begin(name string) (number int, worksAfter time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.runs == nil {
		h.runs, h.short = map[string]int{}, map[string]int{}
	}
	h.runs[name]++
	return h.runs[name], min(WorksAfter<<min(h.short[name], 10), longRun)
}

// works notes that a part does its work, unless another run of it has begun meanwhile.
func (h *PartHealth) works(name string, number int) {
	h.mu.Lock()
	current := h.runs[name] == number
	h.mu.Unlock()
	if current {
		h.Set(name, nil)
	}
}

// count notes that a part has failed soon after it counted as working, or that it has not.
func (h *PartHealth) count(name string, short bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.short[name]++; !short {
		delete(h.short, name)
	}
}

// Set notes why a part does not work, nil if it does.
func (h *PartHealth) Set(name string, err error) {
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

// OnChange has f called from now on when a part has failed or works again.
func (h *PartHealth) OnChange(f func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changed = f
}

// Failed returns the parts that do not work, by name.
func (h *PartHealth) Failed() []FailedPart {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.SortedFunc(maps.Values(h.failed), func(a, b FailedPart) int { return strings.Compare(a.Name, b.Name) })
}
