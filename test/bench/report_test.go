package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"proa.dev/test/bench/benchrun"
)

func TestMillis(t *testing.T) {
	var samples []time.Duration
	for i := range 100 {
		samples = append(samples, time.Duration(100-i)*time.Millisecond)
	}
	for percent, want := range map[int]float64{0: 1, 50: 50, 90: 90, 99: 99, 100: 100} {
		if got := benchrun.Millis(samples, percent); got != want {
			t.Errorf("p%d = %v, want %v", percent, got, want)
		}
	}
	if got := benchrun.Millis(nil, 50); !math.IsNaN(got) {
		t.Errorf("no samples gave %v, want NaN", got)
	}
}

func TestTableHasRatiosAndGoals(t *testing.T) {
	a, b := benchrun.NewResult("upstream"), benchrun.NewResult("proa")
	a.Add("create, 32-way", "/s", 100, benchrun.Higher)
	b.Add("create, 32-way", "/s", 350, benchrun.Higher)
	b.Add("only ours", "ms", 1, benchrun.Lower)
	got := benchrun.Table([]*benchrun.Result{a, b})
	for _, want := range []string{"| 3.50 ", "at least 3.0", "not measured"} {
		if !strings.Contains(got, want) {
			t.Errorf("table lacks %q:\n%s", want, got)
		}
	}
}

func TestDocumentKeepsSectionsOfSuitesThatDidNotRun(t *testing.T) {
	r := benchrun.NewResult("proa")
	r.Add("ReplicaSet to its Pod, p50", "ms", 2, benchrun.Lower)
	all := suites()
	old := document(flags{}, "", []section{{suite: all[0], results: []*benchrun.Result{benchrun.NewResult("first")}},
		{suite: all[1], results: []*benchrun.Result{benchrun.NewResult("stale")}}})
	got := document(flags{}, old, []section{{suite: all[1], results: []*benchrun.Result{r}}})
	for _, want := range []string{"first", "ReplicaSet to its Pod, p50"} {
		if !strings.Contains(got, want) {
			t.Errorf("document lacks %q:\n%s", want, got)
		}
	}
	for _, not := range []string{"stale", "## " + all[2].title} {
		if strings.Contains(got, not) {
			t.Errorf("document has %q:\n%s", not, got)
		}
	}
	if again := document(flags{}, got, []section{{suite: all[1], results: []*benchrun.Result{r}}}); again != got {
		t.Errorf("the same results give another document:\n%s\n---\n%s", got, again)
	}
}

func TestDocumentKeepsWhatNoSuiteWrites(t *testing.T) {
	r := benchrun.NewResult("proa")
	r.Add("ReplicaSet to its Pod, p50", "ms", 2, benchrun.Lower)
	got := document(flags{}, "# Benchmarks\n\n## By hand\n\nwritten by people\n",
		[]section{{suite: suites()[1], results: []*benchrun.Result{r}}})
	if !strings.HasSuffix(got, "\n## By hand\n\nwritten by people\n") || !strings.Contains(got, "ReplicaSet to its Pod") {
		t.Errorf("the document is\n%s", got)
	}
}

func TestDocumentNamesWhatFailed(t *testing.T) {
	r := benchrun.NewResult("proa")
	r.Failed = []string{"rollout: not within 1m0s"}
	if got := document(flags{}, "", []section{{suite: suites()[1], results: []*benchrun.Result{r}}}); !strings.Contains(got,
		"Not measured of proa: rollout: not within 1m0s") {
		t.Errorf("the failure is not told:\n%s", got)
	}
}

// TestMedian takes the middle of what turns gave, also of rows that not every turn has.
func TestMedian(t *testing.T) {
	turn := func(a, b float64, failed ...string) *benchrun.Result {
		r := benchrun.NewResult("x")
		r.Add("a", "ms", a, benchrun.Lower)
		r.Add("b", "/s", b, benchrun.Higher)
		r.Failed = failed
		return r
	}
	none := math.NaN()
	for _, c := range []struct {
		turns []*benchrun.Result
		a, b  float64
		fails int
	}{
		{[]*benchrun.Result{turn(3, 7)}, 3, 7, 0},
		{[]*benchrun.Result{turn(3, 7), turn(5, 1)}, 4, 4, 0},
		{[]*benchrun.Result{turn(3, 7), turn(9, 1, "f"), turn(4, 2, "g", "h")}, 4, 2, 3},
		{[]*benchrun.Result{turn(3, 7), turn(9, none), turn(4, none)}, 4, 7, 0},
	} {
		m := benchrun.Median(c.turns)
		a, _ := m.Find("a")
		b, _ := m.Find("b")
		if a.Value != c.a || b.Value != c.b || a.Unit != "ms" || b.Better != benchrun.Higher || len(m.Failed) != c.fails ||
			len(m.Rows) != 2 {
			t.Errorf("%+v; want %v, %v and %d that failed", m, c.a, c.b, c.fails)
		}
	}
}
