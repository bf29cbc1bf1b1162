// Command bench measures a Kubernetes control plane through its kubeconfig, and
// compares proa with upstream in one run:
//
//	go run ./test/bench --kubeconfig FILE [--pids 12,34]   measure what runs already
//	go run ./test/bench --proa bin/proa                    start proa, measure it
//	go run ./test/bench --proa bin/proa --upstream --out docs/benchmarks.md
//
// There are eight suites: front (requests and watches), loops (controllers),
// schedule (the scheduler), extend (custom resources, policies and webhooks), node (the agent, with real containers: as root),
// traffic (Services and names, in network namespaces: as root), attacks
// (what attacks cost proa's two HTTP/2 servers) and trace (what recording hops costs).
// --suite chooses one; --only chooses measurements of all but the first by a regular expression, --list names them, --scale makes the
// numbers of nodes and Pods smaller or larger. With --out the sections of the
// suites that did not run stay as they are.
//
// The measuring client runs on the same machine as the server it measures, and
// the two systems run one after the other, never together.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/attack"
	"proa.dev/test/bench/benchrun"
	"proa.dev/test/bench/extendbench"
	"proa.dev/test/bench/nodebench"
	"proa.dev/test/bench/trafficbench"
	"proa.dev/test/upstream"
)

type flags struct {
	kubeconfig, proa, out, json, pids, watchers string
	suite, only                                 string
	upstream, manager, list                     bool
	turns                                       int
	changed                                     string // settings that are not the defaults
	load                                        string // one-minute load average before the run
	benchrun.Settings
}

func parse() (flags, error) {
	var f flags
	flag.StringVar(&f.suite, "suite", "all", "what to measure: front, loops, schedule, extend, node, traffic, attacks, trace, or all but the last five")
	flag.StringVar(&f.only, "only", "", "measurements of all suites but front to run, as a regular expression")
	flag.BoolVar(&f.list, "list", false, "name the measurements of all suites but front, and do nothing else")
	flag.IntVar(&f.Wakes, "wakes", 200, "samples of each loop that is woken")
	flag.IntVar(&f.Replicas, "replicas", 500, "Pods of the Deployment")
	flag.IntVar(&f.Nodes, "nodes", 1000, "nodes of the idle measurement")
	flag.Float64Var(&f.Scale, "scale", 1, "factor for the numbers of nodes and Pods of the schedule suite")
	flag.DurationVar(&f.Limit, "limit", 5*time.Minute, "longest wait for one result of loops and scheduler")
	flag.BoolVar(&f.Large, "large", false, "run the largest workload on upstream too")
	flag.StringVar(&f.kubeconfig, "kubeconfig", "", "measure the running server of this kubeconfig")
	flag.StringVar(&f.pids, "pids", "", "its processes, separated by commas, for memory and CPU")
	flag.StringVar(&f.proa, "proa", "bin/proa", "proa binary to start and measure (empty: none)")
	flag.BoolVar(&f.upstream, "upstream", os.Getenv("UPSTREAM") == "1", "also build, start and measure upstream etcd and kube-apiserver")
	flag.BoolVar(&f.manager, "manager", os.Getenv("UPSTREAM_KCM") == "1", "with -upstream and the suite front: run kube-controller-manager and kube-scheduler too, as the other suites do, and count them")
	flag.StringVar(&f.out, "out", "", "write the results as Markdown to this file")
	flag.StringVar(&f.json, "json", "", "write the results as JSON to this file")
	flag.StringVar(&f.watchers, "watchers", "500,1000", "numbers of watchers for the fan-out")
	flag.IntVar(&f.turns, "turns", 3, "how often the systems of the suite front take turns; each number is the median of that many. Of attacks, how often a row is run at most in which proa's own HTTP/2 server looks worse")
	flag.IntVar(&f.Starts, "starts", 5, "cold starts of each system in each turn")
	flag.DurationVar(&f.Settle, "settle", 10*time.Second, "rest before memory is read")
	flag.DurationVar(&f.Idle, "idle", 30*time.Second, "window of the idle CPU measurement")
	flag.IntVar(&f.Sequential, "sequential", 1000, "requests of each kind, one after the other")
	flag.IntVar(&f.ListSize, "list-size", 500, "objects in the namespace that is listed")
	flag.DurationVar(&f.Window, "window", 6*time.Second, "duration of each parallel measurement")
	flag.IntVar(&f.Parallel, "parallel", 32, "workers of the parallel measurements")
	flag.IntVar(&f.Writes, "writes", 60, "writes fanned out to the watchers")
	flag.IntVar(&f.Objects, "objects", 10000, "objects for the memory measurement, and in the namespace that is deleted")
	flag.StringVar(&f.FloodPriority, "flood-priority", "idle", "priority of the process that is the flood: idle (it runs when nothing else does), nice (19) or normal")
	flag.Parse()
	f.Settings.Watchers = ints(f.watchers)
	f.Bin = cmp.Or(f.proa, "bin/proa")
	f.load = benchrun.LoadAverage()
	flag.Visit(func(x *flag.Flag) {
		if f.suite == attacksSuite && x.Name == "suite" { // its command has it
			return
		}
		switch x.Name {
		case "proa", "out", "json", "kubeconfig", "pids", "upstream", "manager", "list":
		default:
			f.changed = strings.TrimSpace(f.changed + " -" + x.Name + "=" + x.Value.String())
		}
	})
	if f.only != "" {
		var err error
		if f.Settings.Only, err = regexp.Compile(f.only); err != nil {
			return f, err
		}
	}
	return f, nil
}

func ints(list string) []int {
	var out []int
	for part := range strings.SplitSeq(list, ",") {
		if n, err := strconv.Atoi(strings.TrimSpace(part)); err == nil {
			out = append(out, n)
		}
	}
	return out
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if extendbench.IsFlood() {
		if err := extendbench.RunFlood(ctx, os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Fprintln(os.Stderr, "bench: the flood:", err)
			os.Exit(1)
		}
		return
	}
	f, err := parse()
	if err == nil {
		err = run(ctx, f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// suite is a group of measurements with a section of its own in the report.
type suite struct {
	name, title string
	run         func(context.Context, *benchrun.Subject, *benchrun.Result, benchrun.Settings) error
	turns       bool // it is short enough to be run several times
	extra       bool // it runs only when it is asked for by name
}

// suites returns all suites in the order in which they run.
func suites() []suite {
	whole := func(steps func(benchrun.Settings) []benchrun.Step) func(context.Context, *benchrun.Subject, *benchrun.Result,
		benchrun.Settings) error {
		return func(ctx context.Context, t *benchrun.Subject, r *benchrun.Result, set benchrun.Settings) error {
			t.Steps(ctx, r, set, steps(set))
			return ctx.Err()
		}
	}
	return []suite{
		{name: "front", title: "Requests and watches", run: front, turns: true},
		{name: "loops", title: "Controllers", run: whole(controllerSteps)},
		{name: "schedule", title: "Scheduler", run: whole(scheduleSteps)},
		{name: "extend", title: "Custom resources, policies and webhooks", run: extendbench.Run, turns: true, extra: true},
		{name: "node", title: "Node", run: nodebench.Run, extra: true},
		{name: "traffic", title: "Traffic", run: trafficbench.Run, extra: true},
		{name: attacksSuite, title: "Attacks", extra: true}, // it compares two servers of one system, see attacks.go
		{name: traceSuite, title: "Recorder", extra: true},  // and so does this one, see tracecost.go
	}
}

func run(ctx context.Context, f flags) error {
	if f.list {
		for _, s := range append(controllerSteps(f.Settings), scheduleSteps(f.Settings)...) {
			fmt.Println(s.Name)
		}
		for _, s := range extendbench.ExtendSteps() {
			fmt.Println(s.Name)
		}
		for _, s := range nodebench.AgentSteps() {
			fmt.Println(s.Name)
		}
		for _, s := range trafficbench.TrafficSteps() {
			fmt.Println(s.Name)
		}
		for _, s := range attack.Attacks() {
			fmt.Println(s.Name)
		}
		return nil
	}
	var sections []section
	for _, s := range suites() {
		if f.suite != s.name && (f.suite != "all" || s.extra) {
			continue
		}
		measure := f.takeTurns
		switch s.name {
		case attacksSuite:
			measure = f.attack
		case traceSuite:
			measure = f.measureTrace
		}
		part, err := measure(ctx, s)
		if err != nil {
			return err
		}
		sections = append(sections, part)
	}
	if len(sections) == 0 {
		return fmt.Errorf("there is no suite %q; take front, loops, schedule, extend, node, traffic, attacks, trace or all", f.suite)
	}
	return report(f, sections)
}

// takeTurns runs a suite on one system after the other. The speed of a machine changes from minute to minute, so they come more than
// once where that does not take too long.
func (f flags) takeTurns(ctx context.Context, s suite) (section, error) {
	turns := 1
	if s.turns {
		turns = max(f.turns, 1)
	}
	systems := f.systems()
	all := make([][]*benchrun.Result, len(systems))
	for turn := range turns {
		if turns > 1 {
			benchrun.Progress("turn %d of %d", turn+1, turns)
		}
		for i, t := range systems {
			r := benchrun.NewResult(t.Name)
			if err := s.run(ctx, t, r, f.Settings); err != nil {
				return section{}, fmt.Errorf("%s: %w", t.Name, err)
			}
			all[i] = append(all[i], r)
		}
	}
	part := section{suite: s}
	for _, of := range all {
		part.results = append(part.results, benchrun.Median(of))
	}
	return part, nil
}

// front is the suite of requests and watches.
func front(ctx context.Context, t *benchrun.Subject, r *benchrun.Result, set benchrun.Settings) error {
	if t.Front == nil {
		return measure(ctx, r, t.Kubeconfig, t.Pids, set)
	}
	return system(ctx, r, set, t.Front, t.Accounts)
}

// system starts one system several times from an empty data folder, and measures the last.
func system(ctx context.Context, r *benchrun.Result, set benchrun.Settings, start func(context.Context) (*upstream.System, error),
	accounts bool) error {
	var ready, account []time.Duration
	for i := range set.Starts {
		benchrun.Progress("%s: cold start %d of %d", r.Name, i+1, set.Starts)
		s, err := start(ctx)
		if err != nil {
			return err
		}
		ready = append(ready, s.Ready)
		if accounts {
			if err := benchrun.WaitAccount(ctx, s); err != nil {
				s.Stop()
				return err
			}
			account = append(account, time.Since(s.Started))
		}
		if i < set.Starts-1 {
			s.Stop()
			continue
		}
		err = measure(ctx, r, s.Kubeconfig, s.Pids(), set)
		s.Stop()
		if err != nil {
			return err
		}
	}
	r.Prepend("cold start to default ServiceAccount", "ms", benchrun.Millis(account, 50), benchrun.Lower)
	r.Prepend("cold start to /readyz (median of "+strconv.Itoa(set.Starts)+")", "ms", benchrun.Millis(ready, 50), benchrun.Lower)
	return nil
}

// measure runs every measurement that needs only a kubeconfig and, for memory
// and CPU, the processes of the server.
func measure(ctx context.Context, r *benchrun.Result, kubeconfig string, pids []int, set benchrun.Settings) error {
	c, err := benchrun.NewClient(kubeconfig)
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		benchrun.Progress("%s: idle for %s", r.Name, set.Settle+set.Idle)
		if err := benchrun.MeasureIdle(ctx, r, pids, set); err != nil {
			return err
		}
	}
	steps := []struct {
		name string
		run  func(context.Context, *benchrun.Client, *benchrun.Result, benchrun.Settings) error
	}{
		{"sequential requests", sequential},
		{"parallel requests", throughput},
		{"watchers", fanOut},
		{"filling with objects", fill},
	}
	for _, step := range steps {
		benchrun.Progress("%s: %s", r.Name, step.name)
		if err := step.run(ctx, c, r, set); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if len(pids) > 0 {
		if err := wait.Sleep(ctx, set.Settle); err != nil {
			return err
		}
		return benchrun.AddMemory(r, pids, fmt.Sprintf("with %d objects", set.Objects))
	}
	return nil
}

// report prints the results and writes the requested files. After that, measurements that failed are an error.
func report(f flags, sections []section) error {
	results := map[string]any{}
	var failed []string
	for _, s := range sections {
		fmt.Println(s.table())
		results[s.suite.name] = s.results
		if s.attacks != nil {
			results[s.suite.name] = s.attacks
			failed = append(failed, worseRows(s.attacks)...)
		}
		if s.trace != nil {
			results[s.suite.name] = s.trace
		}
		for _, r := range s.results {
			for _, text := range r.Failed {
				failed = append(failed, r.Name+": "+text)
			}
		}
	}
	if f.json != "" {
		data, err := json.MarshalIndent(results, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.json, data, 0o644); err != nil {
			return err
		}
	}
	if f.out != "" {
		old, err := os.ReadFile(f.out)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.WriteFile(f.out, []byte(document(f, string(old), sections)), 0o644); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d measurements failed:\n%s", len(failed), strings.Join(failed, "\n"))
	}
	return nil
}
