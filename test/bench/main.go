// Command bench measures a Kubernetes control plane through its kubeconfig, and
// compares proa with upstream in one run:
//
//	go run ./test/bench --kubeconfig FILE [--pids 12,34]   measure what runs already
//	go run ./test/bench --proa bin/proa                    start proa, measure it
//	go run ./test/bench --proa bin/proa --upstream --out docs/benchmarks.md
//
// There are seven suites: front (requests and watches), loops (controllers),
// schedule (the scheduler), extend (custom resources, policies and webhooks), node (the agent, with real containers: as root),
// traffic (Services and names, in network namespaces: as root) and attacks
// (what attacks cost proa's two HTTP/2 servers).
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

	"proa.dev/test/bench/attack"
	"proa.dev/test/upstream"
)

// settings say how much is measured.
type settings struct {
	starts     int           // cold starts of each system
	settle     time.Duration // rest before memory is read
	idle       time.Duration // window of the idle CPU measurement
	sequential int           // requests of each kind, one after the other
	listSize   int           // objects in the listed namespace
	window     time.Duration // how long each 32-way measurement lasts
	parallel   int
	watchers   []int
	writes     int // writes that are fanned out to the watchers
	objects    int // objects for the memory measurement, and in the deleted namespace

	wakes    int            // samples of each loop that is woken
	replicas int            // Pods of the Deployment
	nodes    int            // nodes of the idle measurement
	scale    float64        // factor for the sizes of the schedule suite
	limit    time.Duration  // longest wait for one result of loops and scheduler
	large    bool           // run the largest workload on upstream too
	only     *regexp.Regexp // measurements of all suites but front to run
	bin      string         // the path of proa; the parts of a node are beside it

	floodPriority string // with which priority the flood runs: idle, nice or normal
}

// wanted tells whether a measurement is to be run.
func (s settings) wanted(name string) bool { return s.only == nil || s.only.MatchString(name) }

// scaled is a number of nodes or Pods after the factor.
func (s settings) scaled(n int) int { return max(int(float64(n)*s.scale), 1) }

type flags struct {
	kubeconfig, proa, out, json, pids, watchers string
	suite, only                                 string
	upstream, manager, list                     bool
	turns                                       int
	changed                                     string // settings that are not the defaults
	load                                        string // one-minute load average before the run
	settings
}

func parse() (flags, error) {
	var f flags
	flag.StringVar(&f.suite, "suite", "all", "what to measure: front, loops, schedule, extend, node, traffic, attacks, or all but the last four")
	flag.StringVar(&f.only, "only", "", "measurements of all suites but front to run, as a regular expression")
	flag.BoolVar(&f.list, "list", false, "name the measurements of all suites but front, and do nothing else")
	flag.IntVar(&f.wakes, "wakes", 200, "samples of each loop that is woken")
	flag.IntVar(&f.replicas, "replicas", 500, "Pods of the Deployment")
	flag.IntVar(&f.nodes, "nodes", 1000, "nodes of the idle measurement")
	flag.Float64Var(&f.scale, "scale", 1, "factor for the numbers of nodes and Pods of the schedule suite")
	flag.DurationVar(&f.limit, "limit", 5*time.Minute, "longest wait for one result of loops and scheduler")
	flag.BoolVar(&f.large, "large", false, "run the largest workload on upstream too")
	flag.StringVar(&f.kubeconfig, "kubeconfig", "", "measure the running server of this kubeconfig")
	flag.StringVar(&f.pids, "pids", "", "its processes, separated by commas, for memory and CPU")
	flag.StringVar(&f.proa, "proa", "bin/proa", "proa binary to start and measure (empty: none)")
	flag.BoolVar(&f.upstream, "upstream", os.Getenv("UPSTREAM") == "1", "also build, start and measure upstream etcd and kube-apiserver")
	flag.BoolVar(&f.manager, "manager", os.Getenv("UPSTREAM_KCM") == "1", "with -upstream and the suite front: run kube-controller-manager and kube-scheduler too, as the other suites do, and count them")
	flag.StringVar(&f.out, "out", "", "write the results as Markdown to this file")
	flag.StringVar(&f.json, "json", "", "write the results as JSON to this file")
	flag.StringVar(&f.watchers, "watchers", "500,1000", "numbers of watchers for the fan-out")
	flag.IntVar(&f.turns, "turns", 3, "how often the systems of the suite front take turns; each number is the median of that many. Of attacks, how often a row is run at most in which proa's own HTTP/2 server looks worse")
	flag.IntVar(&f.starts, "starts", 5, "cold starts of each system in each turn")
	flag.DurationVar(&f.settle, "settle", 10*time.Second, "rest before memory is read")
	flag.DurationVar(&f.idle, "idle", 30*time.Second, "window of the idle CPU measurement")
	flag.IntVar(&f.sequential, "sequential", 1000, "requests of each kind, one after the other")
	flag.IntVar(&f.listSize, "list-size", 500, "objects in the namespace that is listed")
	flag.DurationVar(&f.window, "window", 6*time.Second, "duration of each parallel measurement")
	flag.IntVar(&f.parallel, "parallel", 32, "workers of the parallel measurements")
	flag.IntVar(&f.writes, "writes", 60, "writes fanned out to the watchers")
	flag.IntVar(&f.objects, "objects", 10000, "objects for the memory measurement, and in the namespace that is deleted")
	flag.StringVar(&f.floodPriority, "flood-priority", "idle", "priority of the process that is the flood: idle (it runs when nothing else does), nice (19) or normal")
	flag.Parse()
	f.settings.watchers = ints(f.watchers)
	f.bin = cmp.Or(f.proa, "bin/proa")
	f.load = loadAverage()
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
		if f.settings.only, err = regexp.Compile(f.only); err != nil {
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
	if isFlood() {
		if err := runFlood(ctx, os.Args[2], os.Args[3], os.Args[4]); err != nil {
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
	run         func(context.Context, *subject, *result, settings) error
	turns       bool // it is short enough to be run several times
	extra       bool // it runs only when it is asked for by name
}

// suites are all there are, in the order they run.
func suites() []suite {
	whole := func(steps func(settings) []step) func(context.Context, *subject, *result, settings) error {
		return func(ctx context.Context, t *subject, r *result, set settings) error {
			t.steps(ctx, r, set, steps(set))
			return ctx.Err()
		}
	}
	return []suite{
		{name: "front", title: "Requests and watches", run: front, turns: true},
		{name: "loops", title: "Controllers", run: whole(loopSteps)},
		{name: "schedule", title: "Scheduler", run: whole(scheduleSteps)},
		{name: "extend", title: "Custom resources, policies and webhooks", run: extend, turns: true, extra: true},
		{name: "node", title: "Node", run: agents, extra: true},
		{name: "traffic", title: "Traffic", run: traffic, extra: true},
		{name: attacksSuite, title: "Attacks", extra: true}, // it compares two servers of one system, see attacks.go
	}
}

func run(ctx context.Context, f flags) error {
	if f.list {
		for _, s := range append(loopSteps(f.settings), scheduleSteps(f.settings)...) {
			fmt.Println(s.name)
		}
		for _, s := range extendSteps() {
			fmt.Println(s.name)
		}
		for _, s := range agentSteps() {
			fmt.Println(s.name)
		}
		for _, s := range trafficSteps() {
			fmt.Println(s.name)
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
		if s.name == attacksSuite {
			measure = f.attack
		}
		part, err := measure(ctx, s)
		if err != nil {
			return err
		}
		sections = append(sections, part)
	}
	if len(sections) == 0 {
		return fmt.Errorf("there is no suite %q; take front, loops, schedule, extend, node, traffic, attacks or all", f.suite)
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
	all := make([][]*result, len(systems))
	for turn := range turns {
		if turns > 1 {
			progress("turn %d of %d", turn+1, turns)
		}
		for i, t := range systems {
			r := newResult(t.name)
			if err := s.run(ctx, t, r, f.settings); err != nil {
				return section{}, fmt.Errorf("%s: %w", t.name, err)
			}
			all[i] = append(all[i], r)
		}
	}
	part := section{suite: s}
	for _, of := range all {
		part.results = append(part.results, median(of))
	}
	return part, nil
}

// front is the suite of requests and watches.
func front(ctx context.Context, t *subject, r *result, set settings) error {
	if t.front == nil {
		return measure(ctx, r, t.kubeconfig, t.pids, set)
	}
	return system(ctx, r, set, t.front, t.accounts)
}

// system starts one system several times from nothing, and measures the last.
func system(ctx context.Context, r *result, set settings, start func(context.Context) (*upstream.System, error), accounts bool) error {
	var ready, account []time.Duration
	for i := range set.starts {
		progress("%s: cold start %d of %d", r.Name, i+1, set.starts)
		s, err := start(ctx)
		if err != nil {
			return err
		}
		ready = append(ready, s.Ready)
		if accounts {
			if err := waitAccount(ctx, s); err != nil {
				s.Stop()
				return err
			}
			account = append(account, time.Since(s.Started))
		}
		if i < set.starts-1 {
			s.Stop()
			continue
		}
		err = measure(ctx, r, s.Kubeconfig, s.Pids(), set)
		s.Stop()
		if err != nil {
			return err
		}
	}
	r.prepend("cold start to default ServiceAccount", "ms", millis(account, 50), lower)
	r.prepend("cold start to /readyz (median of "+strconv.Itoa(set.starts)+")", "ms", millis(ready, 50), lower)
	return nil
}

// measure runs every measurement that needs only a kubeconfig and, for memory
// and CPU, the processes of the server.
func measure(ctx context.Context, r *result, kubeconfig string, pids []int, set settings) error {
	c, err := newClient(kubeconfig)
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		progress("%s: idle for %s", r.Name, set.settle+set.idle)
		if err := idle(ctx, r, pids, set); err != nil {
			return err
		}
	}
	steps := []struct {
		name string
		run  func(context.Context, *client, *result, settings) error
	}{
		{"sequential requests", sequential},
		{"parallel requests", throughput},
		{"watchers", fanOut},
		{"filling with objects", fill},
	}
	for _, step := range steps {
		progress("%s: %s", r.Name, step.name)
		if err := step.run(ctx, c, r, set); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if len(pids) > 0 {
		if err := sleep(ctx, set.settle); err != nil {
			return err
		}
		return memory(r, pids, fmt.Sprintf("with %d objects", set.objects))
	}
	return nil
}

// report prints the results and writes the files that were asked for. That a
// measurement failed is an error only after that.
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

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
