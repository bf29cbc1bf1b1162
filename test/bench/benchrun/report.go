package benchrun

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// better says whether a lower or a higher number is better.
type better string

// The words for which of two results is better.
const (
	Lower  better = "lower"
	Higher better = "higher"
)

// row is one measured number. NaN means that it was not measured.
type row struct {
	Name   string
	Unit   string
	Value  float64
	Better better
}

// Result has the measurements of one system, in order.
type Result struct {
	Name   string
	Rows   []row
	Failed []string `json:",omitempty"` // measurements that failed, and why
}

// NewResult returns an empty result for a system.
func NewResult(name string) *Result { return &Result{Name: name} }

// Add adds a row, unless its value is NaN.
func (r *Result) Add(name, unit string, value float64, b better) {
	if math.IsNaN(value) {
		return
	}
	r.Rows = append(r.Rows, row{name, unit, value, b})
}

// Prepend adds a row at the front, unless its value is NaN.
func (r *Result) Prepend(name, unit string, value float64, b better) {
	if math.IsNaN(value) {
		return
	}
	r.Rows = slices.Insert(r.Rows, 0, row{name, unit, value, b})
}

// AddFailure records that a measurement failed, and prints it at once.
func (r *Result) AddFailure(name string, err error) {
	Progress("%s: %s: %v", r.Name, name, err)
	line, _, _ := strings.Cut(err.Error(), "\n")
	r.Failed = append(r.Failed, name+": "+line)
}

// Find returns the row of a name.
func (r *Result) Find(name string) (row, bool) {
	i := slices.IndexFunc(r.Rows, func(x row) bool { return x.Name == name })
	if i < 0 {
		return row{}, false
	}
	return r.Rows[i], true
}

// Median combines several turns of one system: each row has the median, or the mean of two.
func Median(turns []*Result) *Result {
	out := NewResult(turns[0].Name)
	for _, x := range turns[0].Rows {
		var values []float64
		for _, t := range turns {
			if y, ok := t.Find(x.Name); ok {
				values = append(values, y.Value)
			}
		}
		slices.Sort(values)
		n := len(values)
		out.Add(x.Name, x.Unit, (values[(n-1)/2]+values[n/2])/2, x.Better)
	}
	for _, t := range turns {
		out.Failed = append(out.Failed, t.Failed...)
	}
	return out
}

// Millis returns a percentile of samples in milliseconds, by the nearest rank.
func Millis(samples []time.Duration, percent int) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	i := (len(sorted)*percent + 99) / 100
	return float64(sorted[min(max(i-1, 0), len(sorted)-1)]) / float64(time.Millisecond)
}

// targets returns the goals compared with upstream, by the name of a row: the largest wanted ratio proa/upstream if
// lower is better, and otherwise the smallest.
func targets() map[string]float64 {
	return map[string]float64{
		"memory (anonymous), idle":          1.0 / 6,
		"create, sequential, p50":           1.0 / 3,
		"get, sequential, p50":              1.0 / 3,
		"create, 32-way":                    3,
		"get, 32-way":                       3,
		"one write to 500 watchers, p50":    0.5,
		"cold start to /readyz (median of ": 0.1,

		"create through one policy, 32-way":                 3,
		"create through one local webhook, 32-way":          3,
		"create of a custom object with five rules, 32-way": 3,
		"list of 10000 custom objects, p50":                 1.0 / 3,
		"watch begins with 10000 custom objects, p50":       1.0 / 3,
		"memory (anonymous), with 10000 custom objects":     1.0 / 3,
		"memory (anonymous), with 1000 definitions":         1.0 / 3,

		"100 nodes, 3000 Pods, binds":            10,
		"100 nodes, 3000 Pods that wait, binds":  10,
		"1000 nodes, 5000 Pods, binds":           10,
		"1000 nodes, 3000 Pods that wait, binds": 10,
	}
}

func target(r row) string {
	for name, ratio := range targets() {
		if r.Name != name && !(strings.HasSuffix(name, " ") && strings.HasPrefix(r.Name, name)) {
			continue
		}
		if r.Better == Lower {
			return fmt.Sprintf("at most %.2f", ratio)
		}
		return fmt.Sprintf("at least %.1f", ratio)
	}
	return ""
}

// Table prints all systems side by side; with two of them also the ratio of
// the second to the first.
func Table(results []*Result) string {
	if len(results) == 0 {
		return ""
	}
	last := results[len(results)-1]
	names := last.Rows
	for _, x := range results[0].Rows {
		if _, ok := last.Find(x.Name); !ok {
			names = append(names, x)
		}
	}
	head := []string{"what", "unit"}
	for _, r := range results {
		head = append(head, r.Name)
	}
	ratio := len(results) == 2
	if ratio {
		head = append(head, "ratio", "goal")
	}
	lines := [][]string{head}
	for _, n := range names {
		line := []string{n.Name, n.Unit}
		var values []float64
		for _, r := range results {
			x, ok := r.Find(n.Name)
			if !ok {
				line = append(line, "not measured")
				continue
			}
			values = append(values, x.Value)
			line = append(line, number(x.Value))
		}
		if ratio && len(values) == 2 && values[0] > 0 && values[1] >= 0 {
			line = append(line, fmt.Sprintf("%.2f", values[1]/values[0]), target(n))
		} else if ratio {
			line = append(line, "", "")
		}
		lines = append(lines, line)
	}
	return Markdown(lines)
}

func number(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// Markdown lays out a table with the first line as its head.
func Markdown(lines [][]string) string {
	width := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			width[i] = max(width[i], len(cell))
		}
	}
	var b strings.Builder
	for i, line := range lines {
		for j, cell := range line {
			fmt.Fprintf(&b, "| %-*s ", width[j], cell)
		}
		b.WriteString("|\n")
		if i == 0 {
			for _, w := range width {
				b.WriteString("|" + strings.Repeat("-", w+2))
			}
			b.WriteString("|\n")
		}
	}
	return b.String()
}
