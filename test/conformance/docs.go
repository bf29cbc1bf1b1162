package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// count is a line of a table.
type count struct{ total, passed, failed, open int }

func (c *count) add(r result) {
	c.total++
	switch r.State {
	case "passed":
		c.passed++
	case "":
		c.open++
	default:
		c.failed++
	}
}

// area is the first words of a test's name: its group and what it is about.
func area(name string) string {
	sig, rest, _ := strings.Cut(name, "] ")
	if i := strings.Index(rest, " should"); i > 0 {
		rest = rest[:i]
	}
	words := strings.Fields(rest)
	return sig + "] " + strings.Join(words[:min(len(words), 2)], " ")
}

// markdown returns the text of docs/conformance.md.
func (r *record) markdown() string {
	var all count
	areas, tiers := map[string]*count{}, map[string]*count{}
	var lines, waiting []string
	several := 0
	for _, t := range r.tests {
		x := r.results[t.Name]
		all.add(x)
		tally(areas, area(t.Name), x)
		tally(tiers, t.Tier, x)
		switch {
		case x.State == "passed" && x.Nodes > 1:
			several++
		case x.State == "":
			waiting = append(waiting, fmt.Sprintf("- %s (tier %s)", t.Name, t.Tier))
		}
		if x.State != "" && x.State != "passed" {
			lines = append(lines, fmt.Sprintf("- %s (tier %s, %s): %s%s", t.Name, t.Tier, x.State,
				strings.ReplaceAll(x.Reason, "<", "&lt;"), because(t.Name)))
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# Conformance\n\n%d of %d tests of the Kubernetes v1.37.1 conformance suite passed, %d did not, %d have not been run. Written by `make conformance` (`go run ./test/conformance`) on %s.\n",
		all.passed, all.total, all.failed, all.open, time.Now().UTC().Format(time.DateOnly))
	fmt.Fprintf(&b, "%d of those that passed did so last with containers on two or more nodes of one machine (`-real -real-nodes 2`); the others with less.\n", several)
	b.WriteString("The suite is upstream's e2e.test, built from its Go module. Containers are made from images that are rebuilt equivalents of the published ones (test/images). Without `-real` the cluster has three simulated nodes: what passes there in tier 2b shows the control plane only, since no container runs. Tests that may run beside others do so, the serial ones follow one after the other, and a test that did not pass is run once more. ")
	b.WriteString("Each test shows its last result; tests recorded as passing are the gate (`-gate` on simulated nodes, `-gate -real` on one with containers), but for slow ones.\n\n")
	b.WriteString("Tiers: 1 needs an API server only, 2a controllers too, 2b nodes that may be simulated, 3a containers, 3b a pod network too.\n\n")
	writeTable(&b, "tier", tiers)
	writeTable(&b, "area", areas)
	fmt.Fprintf(&b, "## Not passed\n\n%s\n\n", strings.Join(lines, "\n"))
	fmt.Fprintf(&b, "## Not run\n\nThese need custom resources, admission webhooks, CEL policies or aggregated APIs, which proa stores but does not act on yet.\n\n%s\n", strings.Join(waiting, "\n"))
	return b.String()
}

// withSections adds to a text the sections of its former version that it does not write itself: those of other suites.
func withSections(text, former string) string {
	for i, section := range strings.Split(former, "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		if i > 0 && !strings.Contains(text, "\n## "+title+"\n") {
			text = strings.TrimRight(text, "\n") + "\n\n## " + strings.TrimRight(section, "\n") + "\n"
		}
	}
	return text
}

// because returns the known reason why a test does not pass.
func because(name string) string {
	for part, why := range map[string]string{
		" of a CR": "Custom resources are stored, and not served yet.",
		" in a CR": "Custom resources are stored, and not served yet.",
		"ImageVolume should succeed with pod and": "It reads the name of Alpine Linux out of the published image, which is made from it. The image that is rebuilt here is made from Debian's packages; all else in the test holds.",
	} {
		if strings.Contains(name, part) {
			return " — " + why
		}
	}
	return ""
}

func tally(m map[string]*count, key string, x result) {
	if m[key] == nil {
		m[key] = &count{}
	}
	m[key].add(x)
}

func writeTable(b *strings.Builder, head string, counts map[string]*count) {
	keys := make([]string, 0, len(counts))
	for k := range counts {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	fmt.Fprintf(b, "| %s | tests | passed | not passed | not run |\n|---|---|---|---|---|\n", head)
	for _, k := range keys {
		c := counts[k]
		fmt.Fprintf(b, "| %s | %d | %d | %d | %d |\n", k, c.total, c.passed, c.failed, c.open)
	}
	b.WriteString("\n")
}
