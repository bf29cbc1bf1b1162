package main

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"proa.dev/test/bench/attack"
)

// better says which direction of a number is the good one.
type better string

const (
	lower  better = "lower"
	higher better = "higher"
)

// row is one measured number. NaN means that it was not measured.
type row struct {
	Name   string
	Unit   string
	Value  float64
	Better better
}

// result is what was measured of one system, in order.
type result struct {
	Name   string
	Rows   []row
	Failed []string `json:",omitempty"` // measurements that failed, and why
}

func newResult(name string) *result { return &result{Name: name} }

func (r *result) add(name, unit string, value float64, b better) {
	if math.IsNaN(value) {
		return
	}
	r.Rows = append(r.Rows, row{name, unit, value, b})
}

func (r *result) prepend(name, unit string, value float64, b better) {
	if math.IsNaN(value) {
		return
	}
	r.Rows = slices.Insert(r.Rows, 0, row{name, unit, value, b})
}

// failed remembers that a measurement failed, and tells it at once.
func (r *result) failed(name string, err error) {
	progress("%s: %s: %v", r.Name, name, err)
	line, _, _ := strings.Cut(err.Error(), "\n")
	r.Failed = append(r.Failed, name+": "+line)
}

func (r *result) find(name string) (row, bool) {
	i := slices.IndexFunc(r.Rows, func(x row) bool { return x.Name == name })
	if i < 0 {
		return row{}, false
	}
	return r.Rows[i], true
}

// median is what several turns of one system gave: of each row the number in the middle, of two the mean.
func median(turns []*result) *result {
	out := newResult(turns[0].Name)
	for _, x := range turns[0].Rows {
		var values []float64
		for _, t := range turns {
			if y, ok := t.find(x.Name); ok {
				values = append(values, y.Value)
			}
		}
		slices.Sort(values)
		n := len(values)
		out.add(x.Name, x.Unit, (values[(n-1)/2]+values[n/2])/2, x.Better)
	}
	for _, t := range turns {
		out.Failed = append(out.Failed, t.Failed...)
	}
	return out
}

// millis is a percentile of samples in milliseconds, by the nearest rank.
func millis(samples []time.Duration, percent int) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Clone(samples)
	slices.Sort(sorted)
	i := (len(sorted)*percent + 99) / 100
	return float64(sorted[min(max(i-1, 0), len(sorted)-1)]) / float64(time.Millisecond)
}

// targets are the goals beside upstream, by the name of a row: for lower is
// better the largest wanted ratio proa/upstream, else the smallest.
func targets() map[string]float64 {
	return map[string]float64{
		"memory (RSS), idle":                1.0 / 6,
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
		if r.Better == lower {
			return fmt.Sprintf("at most %.2f", ratio)
		}
		return fmt.Sprintf("at least %.1f", ratio)
	}
	return ""
}

// table prints all systems side by side; with two of them also the ratio of
// the second to the first.
func table(results []*result) string {
	if len(results) == 0 {
		return ""
	}
	last := results[len(results)-1]
	names := last.Rows
	for _, x := range results[0].Rows {
		if _, ok := last.find(x.Name); !ok {
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
			x, ok := r.find(n.Name)
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
	return markdown(lines)
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

// markdown lays out a table with the first line as its head.
func markdown(lines [][]string) string {
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

// section is the part of the report that one suite fills.
type section struct {
	suite   suite
	results []*result
	attacks *attack.Report // of the suite attacks, which has no results
}

// table is what was measured, as Markdown.
func (s section) table() string {
	if s.attacks != nil {
		return attackTables(s.attacks)
	}
	return table(s.results)
}

const documentHead = `# Benchmarks

Each section is written by one suite of the benchmark tool (` + "`test/bench`" + `), but for those at the end. Everywhere

- one system runs after the other, each from an empty data folder; never both at once;
- the measuring client shares the cores with the system it measures, for both systems alike, so throughput ratios are
  smaller than the systems' own: the client's share of the time is the same for both;
- the client is client-go's REST client: protobuf, HTTP/2, one shared client, no rate limit;
- memory and CPU are those of all processes of the system: for proa that is one process with everything in it, its
  embedded etcd too. Shared and file pages count in RSS; the anonymous rows have only what was allocated. proa gives back
  the pages of its own program when it comes to rest (docs/adr/0030-pages-at-rest.md); upstream does not.
`

// document is the text of docs/benchmarks.md: the new sections, and the old
// text's sections of suites that did not run and of others.
func document(f flags, old string, sections []section) string {
	kept := map[string]string{}
	var others []string // sections that no suite writes
	for _, part := range strings.Split(old, "\n## ")[1:] {
		title, text, _ := strings.Cut(part, "\n")
		kept[title] = text
		if !slices.ContainsFunc(suites(), func(s suite) bool { return s.title == title }) {
			others = append(others, title)
		}
	}
	var b strings.Builder
	b.WriteString(documentHead)
	for _, s := range suites() {
		text, ok := kept[s.title]
		for _, part := range sections {
			if part.suite.name == s.name {
				text, ok = part.text(f), true
			}
		}
		if ok {
			fmt.Fprintf(&b, "\n## %s\n%s", s.title, text)
		}
	}
	for _, title := range others {
		fmt.Fprintf(&b, "\n## %s\n%s", title, kept[title])
	}
	return b.String()
}

func (s section) text(f flags) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nWritten by `%s` on %s. Machine: %d cores, %s of memory, %s/%s.\n\n",
		f.command(), time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), totalMemory(), runtime.GOOS, runtime.GOARCH)
	if f.load != "" {
		fmt.Fprintf(&b, "Load of the machine by others, just before the run: %s. Numbers are only comparable between quiet runs; ratios suffer less.\n\n", f.load)
	}
	b.WriteString(s.table())
	for _, r := range s.results {
		for _, text := range r.Failed {
			fmt.Fprintf(&b, "\nNot measured of %s: %s\n", r.Name, text)
		}
	}
	b.WriteString("\n" + notes(f)[s.suite.name])
	return b.String()
}

// command is how to get the same results.
func (f flags) command() string {
	command := "make bench"
	if f.suite == attacksSuite {
		command = "make bench-attacks"
	}
	if f.upstream {
		command = "UPSTREAM=1 make bench"
	}
	if f.manager {
		command = "UPSTREAM_KCM=1 " + command
	}
	if f.changed != "" {
		command += ", with " + f.changed
	}
	return command
}

// notes say how each suite measures.
func notes(f flags) map[string]string {
	account, made := "", "kube-apiserver and etcd"
	if f.manager {
		made = "etcd, kube-apiserver, kube-controller-manager and kube-scheduler"
	}
	if f.upstream && !f.manager {
		account = "- Upstream gets its default ServiceAccount from kube-controller-manager, which this run does not start (`UPSTREAM_KCM=1` does), so that row is proa's alone.\n"
	}
	return map[string]string{
		attacksSuite: attackNotes,
		"front": `- Each number is the median of ` + strconv.Itoa(max(f.turns, 1)) + ` turns, in which one system ran after the other.
- Upstream is ` + made + `; proa is all it runs, controllers and scheduler too. Objects are ConfigMaps with 1 KiB of data.
- Cold start of upstream counts from the start of etcd, with keys and certificates made beforehand and etcd without TLS; proa's includes making them.
` + account + `- A watch row is the time from the start of a write until the last of all watchers, open at once on one namespace, has read its event.
`,
		"loops": `- Upstream is etcd, kube-apiserver, kube-controller-manager with all controllers and kube-scheduler, without leader election
  and with client limits (2000 requests a second) that are never reached. Each measurement has a system of its own.
- "A to B" rows are the time from the start of the write of A until a watch shows B, one at a time.
- Nodes are objects whose Leases this tool renews every 10 s. In the rows of the Deployment this tool plays the kubelets:
  a bound Pod is ready at once. Simulated nodes are played by proa itself (` + "`--simulate`" + `), in the measured process.
- The Pods of the largest row are those of Deployments of 1,000, all created at once.
`,
		"schedule": `- Upstream is etcd, kube-apiserver, kube-controller-manager with all controllers and kube-scheduler, without leader election
  and with client limits (2000 requests a second) that are never reached. Each workload has a system of its own.
- Binds are counted by a watch, from the start of the first creation (32 at a time) to the last bind, so that the rate is
  that of the whole way, not of the scheduler alone. Processor time is that of all processes of the system in that time.
- Pods that wait were all created, and found unschedulable, while every node had a taint; the clock runs from the removal of
  the first taint to the last bind.
- Nodes are objects whose Leases this tool renews: every 10 s, and for more than 1,000 nodes every 30 s.
- The named workloads have the shapes of those in upstream's scheduler_perf, with fewer Pods, and over the real API.
`,
		"extend": `- Each number is the median of ` + strconv.Itoa(max(f.turns, 1)) + ` turns, in which one system ran after the other. Each measurement has a system of its own.
- Upstream is kube-apiserver and etcd; proa is all it runs, controllers and scheduler too. Custom objects travel as JSON; ConfigMaps, which the policy
  and the webhook decide about, as protobuf. The webhook is an HTTPS server of this tool on loopback; its work is part of both columns.
- A definition has two versions of eleven fields, with two rules each; that of the custom objects has five. Rules are evaluated by the same library in both systems.
- The flood is one user with 200 connections who lists 1,000 custom objects and creates one, in turn, as fast as he is answered. The quiet user creates one
  object after the other. Both are on the cores of the server. The flood is a process of its own with the priority ` + "`" + f.floodPriority + "`" + ` (` + "`idle`" + `: it runs when nothing else
  wants to; ` + "`normal`" + `: as everything else): a flood comes from other machines, and what it takes of these processors stands for nothing. It does not look at what it is sent.
  The quiet user is alone before and after the flood, and its samples of both are taken together.
`,
		"node": `- Both agents stand on the same ground, which this tool runs: containerd, its shim, runc and the pod network (` + "`proa-cni`" + `) as
  proa sets them up. It counts for neither, and neither does the memory of the shims. Upstream is etcd, kube-apiserver,
  kube-controller-manager, kube-scheduler and kubelet, with cgroupfs and client limits that are never reached.
- The agent of upstream is the kubelet alone; that of proa is its one process, with API, etcd, controllers and scheduler.
  The whole cluster of upstream is all five processes.
- The floor is what RunPodSandbox, CreateContainer and StartContainer take one after the other when this tool calls them, on a
  second ground without an agent: for as many Pods, just before each Deployment. Rows over the floor are differences of medians.
- A Pod has one container, whose image is there, and a token of its ServiceAccount. Applied to Ready ends when a watch shows it
  in the status of the Deployment; bound to Ready begins when a watch shows the Pod with its node.
- With grace period 0 the API forgets a Pod at once; the row ends when its sandbox does not run any more.
`,
		"traffic": `- A node is a network namespace with nothing on it but what makes Services and names work; a client and three servers are
  namespaces linked to it. Upstream is kube-proxy in nftables mode and CoreDNS with the Corefile of kubeadm, both as they are by
  default; kube-proxy waits a second between two transactions then. proa is what an agent runs for the same (` + "`test/bench/edge`" + `), in
  one process. Both watch the same API server, a proa without nodes, through a relay of bytes.
- In force is when a new connection from the client, tried every fraction of a millisecond, reaches the server it should.
  The clock starts before the write of the EndpointSlice, or of the Pod's status with Ready. Changes come one at a time, with pauses
  so long that nobody has to wait because of the one before. Pods become ready by the word of this tool, and proa's controller
  writes the EndpointSlice for both.
- Processor time counts the programs that a process ran (kube-proxy: nft). For proa it includes the DNS, which is in the same process.
- Requests are HTTP from 16 workers that send one after the other; client and servers share the cores with all else. So do the
  16 sockets that ask for names. CoreDNS answers from its cache of 30 s where it can; proa answers from its view of the Services.
- Every Service that is just there has three endpoints. The ingress is proa's own, in a process of its own. Upstream has none:
  in its column is the reverse proxy of Go's standard library, with one rule and servers that never change (` + "`test/bench/edge/plain.go`" + `),
  which is the least that such a proxy can cost, and not an ingress. To run ingress-nginx needs its image, which the modules have not.
`,
	}
}
