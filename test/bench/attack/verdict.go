package attack

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Row is one attack with what it did to both servers.
type Row struct {
	Name     string
	Unit     string
	Own, Std Measurement
}

// The own server is as safe as that of net/http in a row when each of its numbers is at most tolerance times the other's, or so small that
// it does no harm: an attack of two to four seconds on a process that may use all cores, and holds some 20 MiB when idle.
const (
	tolerance       = 1.25
	harmlessCPU     = 300 * time.Millisecond
	harmlessMemory  = 32 << 20
	harmlessStarved = 0.05 // of the probes
)

// Worse names the numbers in which the own server is worse than that of net/http by more than is tolerated.
func (r Row) Worse() []string {
	var worse []string
	add := func(what string, own, std, harmless float64) {
		if own > harmless && own > std*tolerance {
			worse = append(worse, what)
		}
	}
	own, std := r.Own, r.Std
	// A server that ended the attack early has done less in all; one that was faster has done more of what was sent. Either may count.
	if perUnit(own) > perUnit(std)*tolerance {
		add("CPU", own.CPU.Seconds(), std.CPU.Seconds(), harmlessCPU.Seconds())
	}
	add("peak memory", float64(own.Peak), float64(std.Peak), harmlessMemory)
	add("memory after", float64(own.After), float64(std.After), harmlessMemory)
	add("probes", starved(own), starved(std), harmlessStarved)
	return worse
}

// Invalid says why a row proves nothing; empty when it does.
func (r Row) Invalid() string {
	for _, m := range []Measurement{r.Own, r.Std} {
		if !m.Reached {
			return "did not reach " + m.Server
		}
	}
	return ""
}

// Verdict returns the last column of the table: whether the own server is as safe as that of net/http.
func (r Row) Verdict() string {
	if text := r.Invalid(); text != "" {
		return text
	}
	if worse := r.Worse(); len(worse) > 0 {
		return "worse: " + strings.Join(worse, ", ")
	}
	return "as safe"
}

func perUnit(m Measurement) float64 { return m.CPU.Seconds() / float64(max(m.Sent, 1)) }

// starved is the share of the probes that were not answered.
func starved(m Measurement) float64 {
	return float64(m.Probes.Starved()) / float64(max(m.Probes.Sent, 1))
}

// middle returns of several measurements of one attack the numbers in the middle.
func middle(all []Measurement) Measurement {
	m := all[len(all)-1]
	m.CPU = middleOf(all, func(m Measurement) time.Duration { return m.CPU })
	m.Peak = middleOf(all, func(m Measurement) int64 { return m.Peak })
	m.After = middleOf(all, func(m Measurement) int64 { return m.After })
	m.Sent = middleOf(all, func(m Measurement) int64 { return m.Sent })
	slices.SortFunc(all, func(a, b Measurement) int { return a.Probes.Starved() - b.Probes.Starved() })
	m.Probes = all[len(all)/2].Probes
	return m
}

func middleOf[T time.Duration | int64](all []Measurement, number func(Measurement) T) T {
	var values []T
	for _, m := range all {
		values = append(values, number(m))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// Cells are the columns of the table.
func (r Row) Cells() []string {
	both := func(text func(Measurement) string) string { return text(r.Own) + " / " + text(r.Std) }
	return []string{
		r.Name,
		both(func(m Measurement) string { return fmt.Sprint(m.Sent) }) + " " + r.Unit,
		both(func(m Measurement) string { return fmt.Sprintf("%.2f", m.CPU.Seconds()) }),
		both(func(m Measurement) string { return mebibytes(m.Peak) }),
		both(func(m Measurement) string { return mebibytes(m.After) }),
		both(func(m Measurement) string { return fmt.Sprintf("%d of %d", m.Probes.Answered, m.Probes.Sent) }),
		both(func(m Measurement) string { return milliseconds(m.Probes.Percentile(99)) }),
		r.Own.Got, r.Std.Got, r.Verdict(),
	}
}

// Head is the first line of the table.
func Head() []string {
	return []string{"attack", "sent", "CPU, s", "peak memory, MiB", "memory after, MiB", "probes answered", "their p99, ms",
		"the attacker got of own", "of std", "own beside std"}
}

func mebibytes(n int64) string { return fmt.Sprintf("%d", (n+1<<19)>>20) }

func milliseconds(v float64) string {
	if math.IsNaN(v) {
		return "none"
	}
	return fmt.Sprintf("%.0f", v)
}
