package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"proa.dev/test/compat/answerdiff"
	"proa.dev/test/compat/compatcases"
)

// finding is a difference with where it was found.
type finding struct {
	Case    string `json:"case"`
	Step    string `json:"step"`
	Request string `json:"request"`
	Class   string `json:"class"` // value, order, corpus, error
	Reason  string `json:"reason,omitempty"`
	answerdiff.Difference
}

// caseResult is what came out of one case.
type caseResult struct {
	name     string
	requests int
	blocked  []string
	findings []finding
}

type engine struct {
	a, b    *compatcases.Target
	ma, mb  *answerdiff.Masker
	verbose bool
	only    *regexp.Regexp
	show    bool // print the answers of steps that match only
}

// prepared makes the maskers of the two servers, once.
func (e *engine) prepared() {
	e.ma, e.mb = answerdiff.NewMasker(e.a.Port), answerdiff.NewMasker(e.b.Port)
}

func (e *engine) run(ctx context.Context, cases []*compatcases.TestCase, workers int) []*caseResult {
	e.prepared()
	var first, rest []*compatcases.TestCase
	for _, c := range cases {
		if c.Alone {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	return append(e.together(ctx, first, 1), e.together(ctx, rest, workers)...)
}

// together runs cases, so many at a time.
func (e *engine) together(ctx context.Context, cases []*compatcases.TestCase, workers int) []*caseResult {
	results := make([]*caseResult, len(cases))
	queue := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range queue {
				results[i] = e.one(ctx, cases[i])
				if e.verbose {
					fmt.Fprintf(os.Stderr, "%s: %d requests, %d findings, %d blocked\n",
						cases[i].Name, results[i].requests, len(results[i].findings), len(results[i].blocked))
				}
			}
		})
	}
	for i := range cases {
		if ctx.Err() == nil {
			queue <- i
		}
	}
	close(queue)
	wg.Wait()
	return slices.DeleteFunc(results, func(r *caseResult) bool { return r == nil })
}

func (e *engine) one(ctx context.Context, c *compatcases.TestCase) *caseResult {
	r := &caseResult{name: c.Name}
	if c.Prepare != nil {
		if _, _, err := both(func(t *compatcases.Target) (struct{}, error) { return struct{}{}, c.Prepare(ctx, t) }, e.a, e.b); err != nil {
			r.fail("prepare", err)
			return r
		}
	}
	var finish func()
	if c.Watch != nil {
		finish = e.record(ctx, c, r)
	}
	sa, sb := &compatcases.State{Objects: map[string]map[string]any{}}, &compatcases.State{Objects: map[string]map[string]any{}}
	for _, s := range c.Steps {
		if ctx.Err() != nil {
			break
		}
		if e.step(ctx, r, s, sa, sb) && c.Settle > 0 {
			time.Sleep(c.Settle)
		}
	}
	if finish != nil {
		finish()
	}
	return r
}

func (r *caseResult) fail(step string, err error) {
	r.findings = append(r.findings,
		finding{Case: r.name, Step: step, Class: "error",
			Difference: answerdiff.Difference{Field: "error", Upstream: "", Proa: err.Error()}})
}

// both runs a function for the two servers at once.
func both[T any](f func(*compatcases.Target) (T, error), a, b *compatcases.Target) (T, T, error) {
	var x, y T
	var errA, errB error
	var wg sync.WaitGroup
	wg.Go(func() { x, errA = f(a) })
	wg.Go(func() { y, errB = f(b) })
	wg.Wait()
	if errA != nil {
		return x, y, errA
	}
	return x, y, errB
}

// step sends one request to both servers and says whether it was a write.
func (e *engine) step(ctx context.Context, r *caseResult, s compatcases.Step, sa, sb *compatcases.State) bool {
	sa.Missing, sb.Missing = false, false
	ca, cb := s.Build(sa), s.Build(sb)
	if sa.Missing || sb.Missing {
		r.blocked = append(r.blocked, s.Name)
		return false
	}
	r.requests++
	calls := map[*compatcases.Target]*compatcases.Call{e.a: ca, e.b: cb}
	x, y, err := both(func(t *compatcases.Target) (*compatcases.Answer, error) { return t.Repeat(ctx, calls[t], s.Until) }, e.a, e.b)
	if err != nil {
		r.fail(s.Name, err)
		return false
	}
	if s.Keep != nil {
		x.Body, y.Body = compatcases.KeepOnly(x.Body, s.Keep), compatcases.KeepOnly(y.Body, s.Keep)
	}
	if s.Save != "" && x.Code < 300 && y.Code < 300 {
		oa, okA := x.Body.(map[string]any)
		ob, okB := y.Body.(map[string]any)
		if okA && okB {
			sa.Objects[s.Save], sb.Objects[s.Save] = oa, ob
		}
	}
	add := func(class string, d answerdiff.Difference) {
		if e.only.MatchString(s.Name) {
			r.findings = append(r.findings, finding{Case: r.name, Step: s.Name, Request: ca.String(), Class: class, Difference: d})
		}
	}
	if e.show && e.only.MatchString(s.Name) {
		fmt.Fprintf(os.Stderr, "%s: %s\n  %s\n  %s\n  upstream %d %s %s\n  proa     %d %s %s\n", r.name, s.Name, ca,
			head(string(ca.Body), 2000),
			x.Code, x.Warnings, answerdiff.Encode(x.Body), y.Code, y.Warnings, answerdiff.Encode(y.Body))
	}
	if s.Must && x.Code >= 300 {
		add("corpus", answerdiff.Difference{Field: "upstream refuses", Upstream: answerdiff.Show(x.Body)})
	}
	class, diffs := compareAnswers(e.ma, e.mb, x, y)
	for _, d := range diffs {
		add(class, d)
	}
	return ca.Method != http.MethodGet && ca.Query.Get("dryRun") == "" && x.Code < 300
}

// compareAnswers masks and compares two answers. When only the order of causes
// differs the class says so.
func compareAnswers(a, b *answerdiff.Masker, x, y *compatcases.Answer) (string, []answerdiff.Difference) {
	if x.Code != y.Code {
		// The bodies of different answers have nothing in common.
		return "value", []answerdiff.Difference{{Field: "code", Upstream: brieflyAnswered(a, x), Proa: brieflyAnswered(b, y)}}
	}
	var out []answerdiff.Difference
	out = append(out, answerdiff.Compare("contentType", x.ContentType, y.ContentType)...)
	out = append(out, answerdiff.Compare("warnings", answerdiff.Anys(x.Warnings), answerdiff.Anys(y.Warnings))...)
	bodyA, bodyB := a.Value(x.Body), b.Value(y.Body)
	statusA, okA := bodyA.(map[string]any)
	statusB, okB := bodyB.(map[string]any)
	var body []answerdiff.Difference
	if okA && okB && statusA["kind"] == "Status" && statusB["kind"] == "Status" {
		body = answerdiff.CompareStatuses(statusA, statusB)
	} else {
		body = answerdiff.Compare("body", bodyA, bodyB)
	}
	if len(out) == 0 && len(body) > 0 && len(answerdiff.Compare("", answerdiff.Unordered(bodyA), answerdiff.Unordered(bodyB))) == 0 {
		return "order", body
	}
	return "value", append(out, body...)
}

// brieflyAnswered is the code of an answer with the message of a refusal.
func brieflyAnswered(m *answerdiff.Masker, x *compatcases.Answer) string {
	body, _ := m.Value(x.Body).(map[string]any)
	if s := answerdiff.Text(body, "message"); s != "" {
		return answerdiff.Shorten(fmt.Sprintf("%d %s", x.Code, s))
	}
	return fmt.Sprintf("%d %s", x.Code, answerdiff.Text(body, "kind"))
}

// record watches both servers while a case runs, and compares the sequences
// of events at its end.
func (e *engine) record(ctx context.Context, c *compatcases.TestCase, r *caseResult) func() {
	ctx, cancel := context.WithCancel(ctx)
	xs, ys, err := both(func(t *compatcases.Target) (<-chan any, error) { return startWatch(ctx, t, c) }, e.a, e.b)
	if err != nil {
		cancel()
		r.fail("watch", err)
		return nil
	}
	return func() {
		defer cancel()
		var wg sync.WaitGroup
		var a, b []any
		wg.Go(func() { a = drain(xs) })
		wg.Go(func() { b = drain(ys) })
		wg.Wait()
		r.requests++
		if !e.only.MatchString("watch") {
			return
		}
		for _, d := range compareEvents(e.ma, e.mb, a, b) {
			r.findings = append(r.findings,
				finding{Case: r.name, Step: "watch", Request: c.Watch().String(), Class: "value", Difference: d})
		}
	}
}

func startWatch(ctx context.Context, t *compatcases.Target, c *compatcases.TestCase) (<-chan any, error) {
	list, err := t.Do(ctx, c.List())
	if err != nil {
		return nil, err
	}
	body, _ := list.Body.(map[string]any)
	meta, _ := body["metadata"].(map[string]any)
	version, _ := meta["resourceVersion"].(string)
	w := c.Watch()
	w.Query.Set("watch", "true")
	w.Query.Set("resourceVersion", version)
	return t.Watch(ctx, w)
}

// drain reads events until none has come for a while.
func drain(events <-chan any) []any {
	const quiet = 400 * time.Millisecond
	var out []any
	for {
		select {
		case v, ok := <-events:
			if !ok {
				return out
			}
			out = append(out, v)
		case <-time.After(quiet):
			return out
		}
	}
}

// compareEvents compares the short form of two event sequences first: when
// they differ in length or order, their objects would only repeat that.
func compareEvents(ma, mb *answerdiff.Masker, a, b []any) []answerdiff.Difference {
	x, y := ma.Value(a).([]any), mb.Value(b).([]any)
	if d := answerdiff.Compare("events", brief(x), brief(y)); len(d) > 0 {
		return d[:1]
	}
	return answerdiff.Compare("events", x, y)
}

func brief(events []any) any {
	var out []string
	for _, v := range events {
		event, _ := v.(map[string]any)
		object, _ := event["object"].(map[string]any)
		meta, _ := object["metadata"].(map[string]any)
		out = append(out, fmt.Sprintf("%v %v", event["type"], meta["name"]))
	}
	return strings.Join(out, ", ")
}
