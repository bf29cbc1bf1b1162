package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
)

// explained is a line of explained.txt: differences that match are known.
type explained struct {
	expr   *regexp.Regexp
	reason string
	count  int
}

// readExplained reads lines of the form "expression => reason". An expression
// is matched against "case | step | field | upstream | proa".
func readExplained(file string) ([]*explained, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []*explained
	lines := bufio.NewScanner(f)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		expr, reason, ok := strings.Cut(line, " => ")
		if !ok {
			return nil, fmt.Errorf("%s:%d: want \"expression => reason\"", file, n)
		}
		re, err := regexp.Compile(expr)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n, err)
		}
		out = append(out, &explained{expr: re, reason: reason})
	}
	return out, lines.Err()
}

// row counts one case.
type row struct {
	name                                                   string
	requests, same, order, explained, unexplained, blocked int
}

// summary is the outcome of a run.
type summary struct {
	rows        []row
	total       row
	findings    []finding
	reasons     []*explained
	blocked     map[string][]string
	unexplained int // requests with a difference that nothing explains
}

func newSummary(results []*caseResult, reasons []*explained) *summary {
	s := &summary{reasons: reasons, blocked: map[string][]string{}, total: row{name: "all"}}
	for _, r := range results {
		s.addCase(r)
	}
	s.unexplained = s.total.unexplained
	return s
}

func (s *summary) addCase(r *caseResult) {
	one := row{name: r.name, requests: r.requests, blocked: len(r.blocked)}
	if len(r.blocked) > 0 {
		s.blocked[r.name] = r.blocked
	}
	worst := map[string]int{} // step: 1 order, 2 explained, 3 unexplained
	for _, f := range r.findings {
		rank := 3
		switch reason := s.explain(f); {
		case reason != "":
			f.Reason, rank = reason, 2
		case f.Class == "order":
			rank = 1
		}
		worst[f.Step] = max(worst[f.Step], rank)
		s.findings = append(s.findings, f)
	}
	for _, rank := range worst {
		switch rank {
		case 1:
			one.order++
		case 2:
			one.explained++
		default:
			one.unexplained++
		}
	}
	one.same = one.requests - len(worst)
	s.rows = append(s.rows, one)
	s.total.requests += one.requests
	s.total.same += one.same
	s.total.order += one.order
	s.total.explained += one.explained
	s.total.unexplained += one.unexplained
	s.total.blocked += one.blocked
}

func (s *summary) explain(f finding) string {
	line := strings.Join([]string{f.Case, f.Step, f.Field, f.Upstream, f.Proa}, " | ")
	for _, e := range s.reasons {
		if e.expr.MatchString(line) {
			e.count++
			return e.reason
		}
	}
	return ""
}

func (s *summary) line() string {
	t := s.total
	return fmt.Sprintf("compat: %d cases, %d requests: %d the same, %d differ in the order of causes only, %d differ for a known reason, %d differ; %d not sent because an earlier answer differed",
		len(s.rows), t.requests, t.same, t.order, t.explained, t.unexplained, t.blocked)
}

// unmatched names the lines of explained.txt that no difference of a whole run
// matched: what they explained is gone, or shows only now and then.
func (s *summary) unmatched() string {
	var b strings.Builder
	for _, e := range s.reasons {
		if e.count == 0 {
			fmt.Fprintf(&b, "explained.txt: nothing matches %s\n", e.expr)
		}
	}
	return b.String()
}

// group is a difference that shows in several places.
type group struct {
	key   string
	all   []finding
	cases map[string]int
}

// groups joins findings that look alike once the kind's own words are taken
// out, the most frequent first.
func (s *summary) groups() []*group {
	byKey := map[string]*group{}
	var out []*group
	for _, f := range s.findings {
		if f.Reason != "" || f.Class == "order" {
			continue
		}
		key := groupKey(f)
		g := byKey[key]
		if g == nil {
			g = &group{key: key, cases: map[string]int{}}
			byKey[key] = g
			out = append(out, g)
		}
		g.all = append(g.all, f)
		g.cases[f.Case]++
	}
	slices.SortStableFunc(out, func(a, b *group) int { return cmp.Compare(len(b.all), len(a.all)) })
	return out
}

func groupKey(f finding) string {
	plural, _, _ := strings.Cut(f.Case, "/")
	plural, group, _ := strings.Cut(plural, ".")
	neutral := func(text string) string {
		if plural == "" || len(plural) < 4 {
			return text
		}
		text = strings.ReplaceAll(text, plural, "PLURAL")
		if group != "" {
			text = strings.ReplaceAll(text, group, "GROUP")
		}
		return regexp.MustCompile(`(?i)`+regexp.QuoteMeta(strings.TrimSuffix(plural, "s"))).ReplaceAllString(text, "KIND")
	}
	field := regexp.MustCompile(`\[\d+\]`).ReplaceAllString(f.Field, "[]")
	step := f.Step
	if !strings.Contains(f.Case, "/") {
		// Documents about the whole server: alike is what has the same last name.
		return strings.Join([]string{f.Case, field[strings.LastIndex(field, ".")+1:]}, " | ")
	}
	if strings.HasPrefix(step, "field ") || strings.HasPrefix(step, "status field ") || strings.HasPrefix(step, "update field ") {
		step = "field probe"
	}
	upstream, proa := neutral(f.Upstream), neutral(f.Proa)
	if strings.HasPrefix(field, "cause ") {
		step = "refusal"
	}
	if field == "code" {
		// Quoted values are the case's own.
		quoted := regexp.MustCompile(`"[^"]*"`)
		upstream, proa = quoted.ReplaceAllString(upstream, `""`), quoted.ReplaceAllString(proa, `""`)
	}
	return strings.Join([]string{step, field, head(upstream, 160), head(proa, 160)}, " | ")
}

func head(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// text is the report for whoever fixes differences, with at most so many groups
// of them unless that is 0.
func (s *summary) text(limit int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-70s %8s %8s %6s %6s %8s %8s\n", "case", "requests", "same", "order", "known", "differ", "blocked")
	for _, r := range append(slices.Clone(s.rows), s.total) {
		fmt.Fprintf(&b, "%-70s %8d %8d %6d %6d %8d %8d\n", r.name, r.requests, r.same, r.order, r.explained, r.unexplained, r.blocked)
	}
	b.WriteString(s.byStep(5))
	for i, g := range s.groups() {
		if i == limit && limit > 0 {
			fmt.Fprintf(&b, "\nand %d more; -text FILE writes them all\n", len(s.groups())-i)
			break
		}
		f := g.all[0]
		fmt.Fprintf(&b, "\n#%d  %d×, in %s\n  e.g. %s: %s\n       %s\n  field     %s\n  upstream  %s\n  proa      %s\n", i+1, len(g.all), names(g.cases), f.Case, f.Step, f.Request, f.Field, f.Upstream, f.Proa)
	}
	for name, steps := range s.blocked {
		fmt.Fprintf(&b, "\nnot sent in %s: %s\n", name, head(strings.Join(steps, "; "), 400))
	}
	return b.String()
}

// byStep lists the steps that differ in many cases: one cause each, most
// likely, in what all kinds share.
func (s *summary) byStep(least int) string {
	example := map[string]finding{}
	cases := map[string]map[string]int{}
	for _, f := range s.findings {
		if f.Reason != "" || f.Class == "order" {
			continue
		}
		if cases[f.Step] == nil {
			cases[f.Step], example[f.Step] = map[string]int{}, f
		}
		cases[f.Step][f.Case]++
	}
	var steps []string
	for step, in := range cases {
		if len(in) >= least {
			steps = append(steps, step)
		}
	}
	slices.SortFunc(steps, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(cases[b]), len(cases[a])), cmp.Compare(a, b))
	})
	var b strings.Builder
	fmt.Fprintf(&b, "\nSteps that differ in %d cases or more, with an example\n", least)
	for _, step := range steps {
		f := example[step]
		fmt.Fprintf(&b, "%4d  %s (%s, %s): upstream %s, proa %s\n", len(cases[step]), step, f.Case, f.Field, head(f.Upstream, 200),
			head(f.Proa, 200))
	}
	return b.String()
}

func names(cases map[string]int) string {
	var out []string
	for name := range cases {
		out = append(out, name)
	}
	slices.Sort(out)
	if len(out) > 6 {
		return fmt.Sprintf("%d cases (%s, …)", len(out), strings.Join(out[:6], ", "))
	}
	return strings.Join(out, ", ")
}

func (s *summary) writeJSON(file string) error {
	data, err := json.MarshalIndent(map[string]any{"findings": s.findings, "blocked": s.blocked}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o644)
}

// statusCodes is the part of docs/compat.md about refusals that have another status code on purpose.
const statusCodes = `
## Status codes that differ on purpose

Upstream answers these requests with 500, as if it had failed. They are the client's mistakes, and proa says so.

| proa | upstream | request |
|---|---|---|
| 400 | 500 | a strategic merge patch that cannot be merged into the object, other than those that upstream refuses with 400 or 422 itself |
| 413 | 500 | an object that is larger than the store accepts, 1.5 MiB |
`

// markdown is the text of docs/compat.md.
func (s *summary) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Compatibility\n\nWritten by `make compat` (`go run ./test/compat`) on %s: the same requests to upstream kube-apiserver v1.37.1 and to proa,\ncompared in status code, content type, warnings and body, with volatile values masked.\n\n%s.\n\n", time.Now().UTC().Format("2006-01-02"), s.line())
	b.WriteString("| case | requests | same | order only | explained | differ | not sent |\n|---|---|---|---|---|---|---|\n")
	for _, r := range append(slices.Clone(s.rows), s.total) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d |\n", r.name, r.requests, r.same, r.order, r.explained, r.unexplained,
			r.blocked)
	}
	b.WriteString("\n## Explained differences\n\n| differences | reason |\n|---|---|\n")
	for _, e := range s.reasons {
		if e.count > 0 {
			fmt.Fprintf(&b, "| %d | %s |\n", e.count, e.reason)
		}
	}
	b.WriteString("\n\"Order only\" are refusals with the same causes in another order. \"Not sent\" are requests that need an earlier answer which differed.\n")
	b.WriteString(statusCodes)
	fmt.Fprintf(&b, "\n## Unexplained differences that many kinds share\n\n```\n%s```\n", s.byStep(10))
	b.WriteString("\n## Unexplained differences, most frequent first\n\n")
	for i, g := range s.groups() {
		if i == 100 {
			fmt.Fprintf(&b, "\nAnd %d more kinds of difference.\n", len(s.groups())-i)
			break
		}
		f := g.all[0]
		fmt.Fprintf(&b, "- %d×, in %s: %s, `%s`: upstream `%s`, proa `%s`\n", len(g.all), names(g.cases), f.Step, f.Field, tick(f.Upstream),
			tick(f.Proa))
	}
	return b.String()
}

func tick(s string) string { return strings.ReplaceAll(head(s, 200), "`", "'") }

// ratchet fails when more requests differ than were recorded, and lowers the
// record when asked to.
func ratchet(file string, s *summary, update bool) error {
	record := struct {
		Unexplained int `json:"unexplained"`
	}{Unexplained: -1}
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, &record)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if record.Unexplained >= 0 && s.unexplained > record.Unexplained {
		return fmt.Errorf("%d requests differ for no written reason, %d were recorded", s.unexplained, record.Unexplained)
	}
	if update || record.Unexplained < 0 {
		record.Unexplained = s.unexplained
		data, err := json.Marshal(record)
		if err != nil {
			return err
		}
		return os.WriteFile(file, append(data, '\n'), 0o644)
	}
	return nil
}
