package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// step is one request sent to both servers. Its body may depend on what the
// same server answered before (a resourceVersion, for example), so build gets
// that server's state.
type step struct {
	name  string
	save  string // name under which a good answer is kept for later steps
	must  bool   // upstream has to accept it, or the corpus is wrong
	build func(*state) *call
	until *regexp.Regexp // sent again until the answer matches
	keep  *regexp.Regexp // what of the answer is compared, all if nil
}

// testCase is a list of steps that share state.
type testCase struct {
	name    string
	prepare func(context.Context, *target) error
	watch   func() *call  // what to watch while the steps run, if anything
	list    func() *call  // where the watch starts
	alone   bool          // before all others: it is about everything that a server has
	settle  time.Duration // rest after each write, for kinds the server itself writes to
	steps   []step
}

// state holds the answers one server gave in one case.
type state struct {
	objects map[string]map[string]any
	missing bool
}

// object returns a copy of a kept answer; without it the step is blocked.
func (s *state) object(name string) map[string]any {
	o, ok := s.objects[name]
	if !ok {
		s.missing = true
		return map[string]any{"metadata": map[string]any{}}
	}
	return clone(o)
}

// version is the resourceVersion of a kept answer.
func (s *state) version(name string) string {
	meta, _ := s.object(name)["metadata"].(map[string]any)
	v, _ := meta["resourceVersion"].(string)
	return v
}

// finding is a difference with where it was found.
type finding struct {
	Case    string `json:"case"`
	Step    string `json:"step"`
	Request string `json:"request"`
	Class   string `json:"class"` // value, order, corpus, error
	Reason  string `json:"reason,omitempty"`
	difference
}

// caseResult is what came out of one case.
type caseResult struct {
	name     string
	requests int
	blocked  []string
	findings []finding
}

type engine struct {
	a, b    *target
	ma, mb  *masker
	verbose bool
	only    *regexp.Regexp
	show    bool // print the answers of steps that match only
}

// prepared makes the maskers of the two servers, once.
func (e *engine) prepared() { e.ma, e.mb = newMasker(e.a.port), newMasker(e.b.port) }

func (e *engine) run(ctx context.Context, cases []*testCase, workers int) []*caseResult {
	e.prepared()
	var first, rest []*testCase
	for _, c := range cases {
		if c.alone {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	return append(e.together(ctx, first, 1), e.together(ctx, rest, workers)...)
}

// together runs cases, so many at a time.
func (e *engine) together(ctx context.Context, cases []*testCase, workers int) []*caseResult {
	results := make([]*caseResult, len(cases))
	queue := make(chan int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range queue {
				results[i] = e.one(ctx, cases[i])
				if e.verbose {
					fmt.Fprintf(os.Stderr, "%s: %d requests, %d findings, %d blocked\n",
						cases[i].name, results[i].requests, len(results[i].findings), len(results[i].blocked))
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

func (e *engine) one(ctx context.Context, c *testCase) *caseResult {
	r := &caseResult{name: c.name}
	if c.prepare != nil {
		if _, _, err := both(func(t *target) (struct{}, error) { return struct{}{}, c.prepare(ctx, t) }, e.a, e.b); err != nil {
			r.fail("prepare", err)
			return r
		}
	}
	var finish func()
	if c.watch != nil {
		finish = e.record(ctx, c, r)
	}
	sa, sb := &state{objects: map[string]map[string]any{}}, &state{objects: map[string]map[string]any{}}
	for _, s := range c.steps {
		if ctx.Err() != nil {
			break
		}
		if e.step(ctx, r, s, sa, sb) && c.settle > 0 {
			time.Sleep(c.settle)
		}
	}
	if finish != nil {
		finish()
	}
	return r
}

func (r *caseResult) fail(step string, err error) {
	r.findings = append(r.findings, finding{Case: r.name, Step: step, Class: "error", difference: difference{Field: "error", Upstream: "", Proa: err.Error()}})
}

// both runs a function for the two servers at once.
func both[T any](f func(*target) (T, error), a, b *target) (T, T, error) {
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
func (e *engine) step(ctx context.Context, r *caseResult, s step, sa, sb *state) bool {
	sa.missing, sb.missing = false, false
	ca, cb := s.build(sa), s.build(sb)
	if sa.missing || sb.missing {
		r.blocked = append(r.blocked, s.name)
		return false
	}
	r.requests++
	calls := map[*target]*call{e.a: ca, e.b: cb}
	x, y, err := both(func(t *target) (*answer, error) { return t.repeat(ctx, calls[t], s.until) }, e.a, e.b)
	if err != nil {
		r.fail(s.name, err)
		return false
	}
	if s.keep != nil {
		x.Body, y.Body = keepOnly(x.Body, s.keep), keepOnly(y.Body, s.keep)
	}
	if s.save != "" && x.Code < 300 && y.Code < 300 {
		oa, okA := x.Body.(map[string]any)
		ob, okB := y.Body.(map[string]any)
		if okA && okB {
			sa.objects[s.save], sb.objects[s.save] = oa, ob
		}
	}
	add := func(class string, d difference) {
		if e.only.MatchString(s.name) {
			r.findings = append(r.findings, finding{Case: r.name, Step: s.name, Request: ca.String(), Class: class, difference: d})
		}
	}
	if e.show && e.only.MatchString(s.name) {
		fmt.Fprintf(os.Stderr, "%s: %s\n  %s\n  %s\n  upstream %d %s %s\n  proa     %d %s %s\n", r.name, s.name, ca, head(string(ca.body), 2000),
			x.Code, x.Warnings, encode(x.Body), y.Code, y.Warnings, encode(y.Body))
	}
	if s.must && x.Code >= 300 {
		add("corpus", difference{"upstream refuses", show(x.Body), ""})
	}
	class, diffs := compareAnswers(e.ma, e.mb, x, y)
	for _, d := range diffs {
		add(class, d)
	}
	return ca.method != http.MethodGet && ca.query.Get("dryRun") == "" && x.Code < 300
}

// compareAnswers masks and compares two answers. When only the order of causes
// differs the class says so.
func compareAnswers(a, b *masker, x, y *answer) (string, []difference) {
	if x.Code != y.Code {
		// The bodies of different answers have nothing in common.
		return "value", []difference{{"code", brieflyAnswered(a, x), brieflyAnswered(b, y)}}
	}
	var out []difference
	out = append(out, compare("contentType", x.ContentType, y.ContentType)...)
	out = append(out, compare("warnings", anys(x.Warnings), anys(y.Warnings))...)
	bodyA, bodyB := a.value(x.Body), b.value(y.Body)
	statusA, okA := bodyA.(map[string]any)
	statusB, okB := bodyB.(map[string]any)
	var body []difference
	if okA && okB && statusA["kind"] == "Status" && statusB["kind"] == "Status" {
		body = compareStatuses(statusA, statusB)
	} else {
		body = compare("body", bodyA, bodyB)
	}
	if len(out) == 0 && len(body) > 0 && len(compare("", unordered(bodyA), unordered(bodyB))) == 0 {
		return "order", body
	}
	return "value", append(out, body...)
}

// brieflyAnswered is the code of an answer with the message of a refusal.
func brieflyAnswered(m *masker, x *answer) string {
	body, _ := m.value(x.Body).(map[string]any)
	if s := text(body, "message"); s != "" {
		return shorten(fmt.Sprintf("%d %s", x.Code, s))
	}
	return fmt.Sprintf("%d %s", x.Code, text(body, "kind"))
}

func anys(list []string) any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}

// record watches both servers while a case runs, and compares the sequences
// of events at its end.
func (e *engine) record(ctx context.Context, c *testCase, r *caseResult) func() {
	ctx, cancel := context.WithCancel(ctx)
	xs, ys, err := both(func(t *target) (<-chan any, error) { return startWatch(ctx, t, c) }, e.a, e.b)
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
			r.findings = append(r.findings, finding{Case: r.name, Step: "watch", Request: c.watch().String(), Class: "value", difference: d})
		}
	}
}

func startWatch(ctx context.Context, t *target, c *testCase) (<-chan any, error) {
	list, err := t.do(ctx, c.list())
	if err != nil {
		return nil, err
	}
	body, _ := list.Body.(map[string]any)
	meta, _ := body["metadata"].(map[string]any)
	version, _ := meta["resourceVersion"].(string)
	w := c.watch()
	w.query.Set("watch", "true")
	w.query.Set("resourceVersion", version)
	return t.watch(ctx, w)
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
func compareEvents(ma, mb *masker, a, b []any) []difference {
	x, y := ma.value(a).([]any), mb.value(b).([]any)
	if d := compare("events", brief(x), brief(y)); len(d) > 0 {
		return d[:1]
	}
	return compare("events", x, y)
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

// clone copies a tree of plain values.
func clone[T any](v T) T { return copyTree(v).(T) }

func copyTree(v any) any {
	switch x := v.(type) {
	case map[string]any:
		out := maps.Clone(x)
		for k, item := range out {
			out[k] = copyTree(item)
		}
		return out
	case []any:
		out := slices.Clone(x)
		for i, item := range out {
			out[i] = copyTree(item)
		}
		return out
	}
	return v
}

// encode renders a tree as JSON; trees come from JSON, so it cannot fail.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return data
}
