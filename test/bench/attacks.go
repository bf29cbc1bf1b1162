package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"proa.dev/test/bench/attack"
)

// attacksSuite is the name of the suite that compares proa's two HTTP/2 servers under attack.
const attacksSuite = "attacks"

// attack runs the suite of attacks. It takes no turns with upstream: both servers are those of proa.
func (f flags) attack(ctx context.Context, s suite) (section, error) {
	report, err := attack.Run(ctx, attack.Options{
		Binary: f.bin, Only: f.settings.only, Turns: f.turns, Progress: progress,
		CPU: func(pid int) (time.Duration, error) { return cpu([]int{pid}) },
	})
	return section{suite: s, attacks: report}, err
}

// attackTables are the two tables of a report: costs, and answers.
func attackTables(r *attack.Report) string {
	costs, answers := [][]string{attack.Head()}, [][]string{{"request", "own", "std", "own beside std"}}
	for _, row := range r.Rows {
		costs = append(costs, row.Cells())
	}
	for _, a := range r.Answers {
		answers = append(answers, a.Cells())
	}
	return markdown(costs) + "\n" + markdown(answers)
}

// worseRows names the rows in which proa's own HTTP/2 server is not as safe as that of net/http.
func worseRows(r *attack.Report) []string {
	var out []string
	for _, row := range r.Rows {
		if row.Invalid() != "" || len(row.Worse()) > 0 {
			out = append(out, fmt.Sprintf("%s: %s", row.Name, row.Verdict()))
		}
	}
	for _, a := range r.Answers {
		if !a.Same() {
			out = append(out, strings.Join(a.Cells(), ": "))
		}
	}
	return out
}

// attackNotes say how the suite of attacks measures.
const attackNotes = `TODO
`
