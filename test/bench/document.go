package main

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"proa.dev/test/bench/attack"
	"proa.dev/test/bench/benchrun"
)

// document returns the text of docs/benchmarks.md: the new sections, and from the old text the sections that did not
// run or that no suite writes.
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

// section is the part of the report that one suite fills.
type section struct {
	suite   suite
	results []*benchrun.Result
	attacks *attack.Report // of the suite attacks, which has no results
	trace   *traceCost     // of the suite trace, which has none either
}

// table returns the measurements as a Markdown table.
func (s section) table() string {
	if s.attacks != nil {
		return attackTables(s.attacks)
	}
	if s.trace != nil {
		return s.trace.table()
	}
	return benchrun.Table(s.results)
}

func (s section) text(f flags) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\nWritten by `%s` on %s. Machine: %d cores, %s of memory, %s/%s.\n\n",
		f.command(), time.Now().UTC().Format("2006-01-02"), runtime.NumCPU(), benchrun.TotalMemory(), runtime.GOOS, runtime.GOARCH)
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
	if s.trace != nil {
		b.WriteString(s.trace.notes())
	}
	return b.String()
}

const documentHead = `# Benchmarks

Each section is written by one suite of the benchmark tool (` + "`test/bench`" + `), but for those at the end. Everywhere

- one system runs after the other, each from an empty data folder; never both at once;
- the measuring client shares the cores with the system it measures, for both systems alike, so throughput ratios are
  smaller than the systems' own: the client's share of the time is the same for both;
- the client is client-go's REST client: protobuf, HTTP/2, one shared client, no rate limit;
- memory and CPU are those of all processes of the system: for proa that is one process with everything in it, its
  embedded etcd too. Anonymous memory is what the processes have allocated, and is the number to compare. RSS, which comes
  second, also counts pages of files and programs that the kernel can drop (docs/adr/0030-memory-at-idle.md).
`

// command returns the command that produces the same results.
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

// notes describes how each suite measures.
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
  object after the other. Both are on the cores of the server. The flood is a process of its own with the priority ` + "`" + f.FloodPriority + "`" + ` (` + "`idle`" + `: it runs when nothing else
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
  in its column is the reverse proxy of Go's standard library, with one rule and servers that never change (` + "`test/bench/edge/reverseproxy.go`" + `),
  which is the least that such a proxy can cost, and not an ingress. To run ingress-nginx needs its image, which the modules have not.
`,
	}
}
