// Package report prints explanations for people.
package report

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"proa.dev/why"
)

// Write prints an answer for people. Clean makes a text of somebody else harmless for a terminal; now is the time of the question.
func Write(out io.Writer, a *why.Answer, now time.Time, clean func(string) string) {
	fmt.Fprintln(out, clean(Headline(a)))
	for at, depth := a, 0; at != nil; at, depth = at.Through, depth+1 {
		if depth > 0 {
			fmt.Fprintf(out, "\n%s:\n", clean(at.Object.String()))
		}
		writeDetails(out, at, now, clean)
	}
	if len(a.Unseen) > 0 {
		fmt.Fprintln(out, "\nNot seen:")
		for _, u := range a.Unseen {
			fmt.Fprintln(out, "  "+clean(u))
		}
	}
}

// Headline is the answer in one line: which object, how it does, at which hop, and the cause.
func Headline(a *why.Answer) string {
	where := ""
	if a.Hop != 0 && a.State != why.Working {
		where = fmt.Sprintf(" at hop %d (%s)", a.Hop, a.HopName)
	}
	name := a.Object.String()
	if a.Object.Namespace != "" {
		name += " in " + a.Object.Namespace
	}
	return fmt.Sprintf("%s: %s%s. %s", name, strings.ToLower(string(a.State)), where, a.Cause)
}

func writeDetails(out io.Writer, a *why.Answer, now time.Time, clean func(string) string) {
	table := func(title string, rows [][]string) {
		if len(rows) == 0 {
			return
		}
		fmt.Fprintln(out, "  "+title)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, row := range rows {
			for i := range row {
				row[i] = clean(strings.Join(strings.Fields(row[i]), " "))
			}
			fmt.Fprintln(w, "    "+strings.TrimRight(strings.Join(row, "\t"), "\t"))
		}
		_ = w.Flush() // out is a terminal or a buffer
	}
	var chain, evidence, nodes [][]string
	for _, s := range a.Chain {
		mark := "ok"
		if !s.OK {
			mark = "NOT OK"
		}
		chain = append(chain, []string{s.Name, mark, s.Text})
	}
	for _, e := range a.Evidence {
		when := ""
		if e.Time != nil && !e.Time.After(now) {
			when = now.Sub(*e.Time).Round(time.Second).String() + " ago"
		}
		evidence = append(evidence, []string{e.Object.String(), e.Field, e.Value, when})
	}
	for _, n := range a.Nodes {
		score := "rejected"
		if n.Reason == "" {
			score = "fits"
		}
		if n.Score != nil {
			score = fmt.Sprintf("score %d", *n.Score)
		}
		nodes = append(nodes, []string{n.Node, score, n.Reason})
	}
	table("chain", chain)
	table("nodes", nodes)
	table("evidence", evidence)
	if len(a.Actions) > 0 {
		fmt.Fprintln(out, "  what to do")
		for _, s := range a.Actions {
			fmt.Fprintln(out, "    "+clean(s))
		}
	}
}
