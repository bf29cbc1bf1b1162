package main

import (
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"
)

// reason explains differences: an entry of explained.txt.
type reason struct {
	scenario string // a pattern as of path.Match
	match    *regexp.Regexp
	verdict  string // "intended" or "bug"
	why      string
	used     int
}

// readReasons reads lines of four parts with " | " between them: scenario, pattern, outcome, reason.
func readReasons(file string) ([]*reason, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out []*reason
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		parts := strings.SplitN(line, " | ", 4)
		if len(parts) != 4 || parts[2] != "intended" && parts[2] != "bug" {
			return nil, fmt.Errorf("%s:%d: not of the form: scenario | pattern | intended or bug | why", file, i+1)
		}
		match, err := regexp.Compile(parts[1])
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		out = append(out, &reason{scenario: parts[0], match: match, verdict: parts[2], why: parts[3]})
	}
	return out, nil
}

// outcome has the differences of one scenario, explained and unexplained.
type outcome struct {
	scenario *scenario
	snaps    int
	open     []difference
	known    map[*reason][]difference
}

type report struct {
	verdicts []*outcome
	reasons  []*reason
}

// compareRecords compares the records of all scenarios, and finds the reasons of differences.
func compareRecords(all []*scenario, theirs, ours map[string]*record, reasons []*reason) *report {
	out := &report{reasons: reasons}
	for _, s := range all {
		v := &outcome{scenario: s, snaps: len(theirs[s.name].Snaps), known: map[*reason][]difference{}}
		for _, d := range compare(s.name, theirs[s.name], ours[s.name]) {
			if r := explain(reasons, d); r != nil {
				r.used++
				v.known[r] = append(v.known[r], d)
			} else {
				v.open = append(v.open, d)
			}
		}
		out.verdicts = append(out.verdicts, v)
	}
	return out
}

func explain(reasons []*reason, d difference) *reason {
	for _, r := range reasons {
		if ok, _ := path.Match(r.scenario, d.Scenario); ok &&
			r.match.MatchString(d.Where+": "+d.Path+": upstream "+d.Upstream+", proa "+d.Proa) {
			return r
		}
	}
	return nil
}

func (r *report) open() (n int) {
	for _, v := range r.verdicts {
		n += len(v.open)
	}
	return n
}

func (r *report) print(w io.Writer, verbose bool) {
	same := 0
	for _, v := range r.verdicts {
		if len(v.open)+len(v.known) == 0 {
			same++
		}
		for _, d := range v.open {
			fmt.Fprintln(w, "OPEN", d)
		}
		for reason, list := range v.known {
			for _, d := range list {
				if verbose {
					fmt.Fprintf(w, "%s %s (%s)\n", reason.verdict, d, reason.why)
				}
			}
		}
	}
	fmt.Fprintf(w, "%d scenarios, %d the same, %d differences without a reason\n", len(r.verdicts), same, r.open())
}

// markdown returns the report as a Markdown page.
func (r *report) markdown() string {
	var b strings.Builder
	same := 0
	for _, v := range r.verdicts {
		if len(v.open)+len(v.known) == 0 {
			same++
		}
	}
	fmt.Fprintf(&b, `# Controllers and scheduler compared with upstream

`+"`make compat-loops`"+` plays the same scenarios on proa and on upstream's kube-apiserver, kube-controller-manager and
kube-scheduler v1.37.1, plays the kubelets on both, and compares what a client sees once each is idle: objects with
their status and conditions, Events without their counts, and refusals. Generated names, hashes, UIDs, times and
addresses are mapped to the same words first. The scenarios are in test/loops/scenarios; known differences and their reasons
are in test/loops/explained.txt.

%d scenarios, %d of them the same in all that is compared.

| scenario | what it shows | snaps | result |
|---|---|---|---|
`, len(r.verdicts), same)
	for _, v := range r.verdicts {
		fmt.Fprintf(&b, "| %s | %s | %d | %s |\n", v.scenario.name, v.scenario.about, v.snaps, v.result())
	}
	b.WriteString("\n## Differences\n\n| verdict | in | why |\n|---|---|---|\n")
	for _, reason := range r.reasons {
		if reason.used == 0 {
			continue
		}
		var in []string
		for _, v := range r.verdicts {
			if len(v.known[reason]) > 0 {
				in = append(in, v.scenario.name)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", reason.verdict, strings.Join(in, ", "), reason.why)
	}
	for _, v := range r.verdicts {
		for _, d := range v.open {
			fmt.Fprintf(&b, "| not judged yet | %s | `%s` |\n", v.scenario.name,
				strings.ReplaceAll(strings.ReplaceAll(d.String(), "|", "/"), "`", "'"))
		}
	}
	return b.String()
}

func (v *outcome) result() string {
	bugs, meant := 0, 0
	for r, list := range v.known {
		if r.verdict == "bug" {
			bugs += len(list)
		} else {
			meant += len(list)
		}
	}
	var parts []string
	for _, p := range []struct {
		n    int
		name string
	}{{meant, "intended"}, {bugs, "to fix"}, {len(v.open), "not judged"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.name))
		}
	}
	if parts == nil {
		return "same"
	}
	return strings.Join(parts, ", ")
}
