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

// maxNodes is how many nodes are printed at most.
const maxNodes = 20

// nodeRow is a node as it is printed: its name, its score or that it was rejected, and what that comes from.
func nodeRow(n *why.NodeReason) []string {
	name := n.Node
	if n.Hidden {
		name = "(hidden)"
	}
	if n.Chosen {
		name += " (chosen)"
	}
	switch {
	case n.Reason != "":
		return []string{name, "rejected", n.Plugin, n.Reason}
	case n.Score == nil:
		return []string{name, "fits", "", "the only node that fits"}
	}
	var parts []string
	for _, s := range n.Scores {
		if s.Score != 0 {
			parts = append(parts, fmt.Sprintf("%s %d", s.Plugin, s.Score))
		}
	}
	return []string{name, fmt.Sprintf("score %d", *n.Score), "", strings.Join(parts, ", ")}
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
	for _, n := range a.Nodes[:min(len(a.Nodes), maxNodes)] {
		nodes = append(nodes, nodeRow(&n))
	}
	if rest := len(a.Nodes) - len(nodes) + a.NodesLeftOut; rest > 0 {
		nodes = append(nodes, []string{fmt.Sprintf("and %d more", rest)})
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
