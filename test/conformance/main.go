// Command conformance runs the upstream conformance tests against a proa
// cluster that it starts itself:
//
//	go run ./test/conformance -tier 1            the tests of one tier
//	go run ./test/conformance -focus 'ConfigMap' those whose name matches
//	go run ./test/conformance -gate              those recorded as passing that need no containers
//	go run ./test/conformance -gate -real        those recorded as passing that need them, on a real node
//
// It keeps every test's last result in results.json and the names of those
// that passed in passing.txt, and writes both as docs/conformance.md.
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
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"proa.dev/test/upstream"
)

type flags struct {
	proa, kubeconfig, focus, skip, tier, docs string
	gate, upstream, keep, withNodes, real     bool
	procs, batch, simulate, realNodes         int
	limit, gateLimit                          time.Duration
}

func parse() flags {
	var f flags
	flag.StringVar(&f.proa, "proa", "bin/proa", "the proa binary to start a cluster with")
	flag.StringVar(&f.kubeconfig, "kubeconfig", "", "use the running cluster of this kubeconfig instead")
	flag.StringVar(&f.focus, "focus", os.Getenv("FOCUS"), "only tests whose name matches this expression")
	flag.StringVar(&f.skip, "skip", os.Getenv("SKIP"), "leave out tests whose name matches this expression")
	flag.StringVar(&f.tier, "tier", os.Getenv("TIER"), "only tests of these tiers, separated by commas: 1, 2a, 2b, 3a, 3b")
	flag.StringVar(&f.docs, "docs", "docs/conformance.md", "write the result table to this file")
	flag.BoolVar(&f.gate, "gate", false, "run what is recorded as passing and needs no containers; fail if one of them fails twice; record nothing")
	flag.BoolVar(&f.upstream, "upstream", false, "run against upstream kube-apiserver instead, to check the harness; record nothing")
	flag.BoolVar(&f.keep, "keep", false, "keep the folder with the logs and reports of the test programs")
	flag.BoolVar(&f.withNodes, "nodes", false, "the cluster has nodes: let the suite wait for them")
	flag.BoolVar(&f.real, "real", false, "run real nodes, with containers, instead of simulated ones; it needs root")
	flag.IntVar(&f.simulate, "simulate", 3, "give the cluster this many simulated nodes; what then passes shows the control plane only")
	flag.IntVar(&f.realNodes, "real-nodes", 1, "with -real, run this many nodes on this machine")
	flag.IntVar(&f.procs, "procs", 4, "test programs at a time")
	flag.IntVar(&f.batch, "batch", 10, "tests that one test program runs")
	flag.DurationVar(&f.limit, "limit", 20*time.Minute, "time limit of one test program")
	flag.DurationVar(&f.gateLimit, "gate-limit", 90*time.Second, "the gate leaves out tests that took longer than this when they passed")
	flag.Parse()
	if (f.simulate > 0 || f.real) && f.kubeconfig == "" && !f.upstream {
		f.withNodes = true
	}
	return f
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, parse()); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) error {
	root, err := upstream.Root()
	if err != nil {
		return err
	}
	rec, err := loadRecord(filepath.Join(root, "test", "conformance"))
	if err != nil {
		return err
	}
	chosen, err := choose(f, rec)
	if err != nil {
		return err
	}
	if len(chosen) == 0 {
		if f.gate {
			fmt.Println("conformance: nothing is recorded as passing yet")
			return nil
		}
		return errors.New("no test matches")
	}
	bins, err := upstream.Build(ctx, "e2e.test", "kubectl")
	if err != nil {
		return err
	}
	kubeconfig, stop, err := cluster(ctx, f, bins["kubectl"])
	if err != nil {
		return err
	}
	defer stop()
	r := &runner{flags: f, e2e: bins["e2e.test"], kubectl: bins["kubectl"], kubeconfig: kubeconfig}
	begin := time.Now()
	results, err := r.all(ctx, chosen)
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d tests in %s\n", len(results), time.Since(begin).Round(time.Second))
	return conclude(f, root, rec, results)
}

// cluster returns the kubeconfig of the cluster to test, and starts one if none is given.
func cluster(ctx context.Context, f flags, kubectl string) (string, func(), error) {
	var s *upstream.System
	var err error
	switch {
	case f.kubeconfig != "":
		return f.kubeconfig, func() {}, nil
	case f.upstream:
		s, err = upstream.Start(ctx, upstream.Options{Controllers: []string{"*"}})
	case f.real:
		return realCluster(ctx, f, kubectl)
	default:
		s, err = upstream.StartProa(ctx, f.proa, "--simulate", strconv.Itoa(f.simulate))
	}
	if err != nil {
		return "", nil, err
	}
	return s.Kubeconfig, func() {
		if dead := s.Dead(); dead != "" {
			fmt.Fprintln(os.Stderr, dead)
		}
		s.Stop()
	}, nil
}

// choose picks the tests of this run.
func choose(f flags, rec *record) ([]test, error) {
	focus, err := regexp.Compile(f.focus)
	if err != nil {
		return nil, fmt.Errorf("focus: %w", err)
	}
	skip, err := regexp.Compile(f.skip)
	if err != nil {
		return nil, fmt.Errorf("skip: %w", err)
	}
	tiers := strings.FieldsFunc(f.tier, func(r rune) bool { return r == ',' })
	if f.gate {
		tiers = []string{"1", "2a", "2b"}
		if f.real {
			tiers = []string{"3a", "3b"}
		}
	}
	var out []test
	for _, t := range rec.tests {
		switch {
		case len(tiers) > 0 && !slices.Contains(tiers, t.Tier):
		case !focus.MatchString(t.Name):
		case f.skip != "" && skip.MatchString(t.Name):
		case f.gate && (!rec.passing[t.Name] || rec.results[t.Name].Seconds > f.gateLimit.Seconds()):
		default:
			out = append(out, t)
		}
	}
	// Long tests first, so that the last one does not run alone.
	slices.SortStableFunc(out, func(a, b test) int {
		return cmp.Compare(rec.results[b.Name].Seconds, rec.results[a.Name].Seconds)
	})
	return out, nil
}

func conclude(f flags, root string, rec *record, results map[string]result) error {
	var failed []string
	passed := 0
	for name, r := range results {
		if r.State == "passed" {
			passed++
		} else {
			failed = append(failed, name)
		}
	}
	slices.Sort(failed)
	for _, name := range failed {
		fmt.Printf("%s %s\n    %s\n", results[name].State, name, results[name].Reason)
	}
	fmt.Printf("conformance: %d of %d chosen tests passed\n", passed, len(results))
	if f.gate {
		if len(failed) > 0 {
			return fmt.Errorf("%d tests that passed before fail now", len(failed))
		}
		return nil
	}
	if f.upstream {
		return nil
	}
	rec.merge(results)
	if err := rec.save(); err != nil {
		return err
	}
	docs := f.docs
	if !filepath.IsAbs(docs) {
		docs = filepath.Join(root, docs)
	}
	former, err := os.ReadFile(docs)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(docs, []byte(withSections(rec.markdown(), string(former))), 0o644)
}

// test is one test of the suite, as tests.json lists it.
type test struct {
	Name   string `json:"codename"`
	File   string `json:"file"`
	Tier   string `json:"subtier"`
	Serial bool   `json:"serial"`
}

// result is the result of a test.
type result struct {
	State   string  `json:"state"` // passed, failed, skipped, unfinished
	Reason  string  `json:"reason,omitempty"`
	Seconds float64 `json:"seconds"`
	Date    string  `json:"date"`
	Retried bool    `json:"retried,omitempty"`
	// Nodes is the number of nodes with containers.
	Nodes int `json:"nodes,omitempty"`
}

// record has the results of earlier runs, which are kept in the repository.
type record struct {
	dir     string
	tests   []test
	results map[string]result
	passing map[string]bool
}

func loadRecord(dir string) (*record, error) {
	r := &record{dir: dir, results: map[string]result{}, passing: map[string]bool{}}
	data, err := os.ReadFile(filepath.Join(dir, "tests.json"))
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(data, &r.tests); err != nil {
		return nil, fmt.Errorf("tests.json: %w", err)
	}
	if data, err := os.ReadFile(filepath.Join(dir, "results.json")); err == nil {
		if err := json.Unmarshal(data, &r.results); err != nil {
			return nil, fmt.Errorf("results.json: %w", err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(dir, "passing.txt")); err == nil {
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
				r.passing[line] = true
			}
		}
	}
	return r, nil
}

// merge takes in new results. What passed once stays in the list of passing
// tests until someone takes it out by hand: that is the point of the gate.
func (r *record) merge(results map[string]result) {
	for name, x := range results {
		if old := r.results[name]; x.State == "passed" && old.State == "passed" {
			x.Seconds = min(x.Seconds, old.Seconds) // what it needs, not what else the machine did
		}
		r.results[name] = x
		if x.State == "passed" {
			r.passing[name] = true
		}
	}
}

func (r *record) save() error {
	data, err := json.MarshalIndent(r.results, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, "results.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	names := make([]string, 0, len(r.passing))
	for name := range r.passing {
		names = append(names, name)
	}
	slices.Sort(names)
	text := "# Tests that have passed. The gate runs those that need no containers, and quick ones of those that do. Only take a line out with a reason in the commit.\n" + strings.Join(names, "\n") + "\n"
	return os.WriteFile(filepath.Join(r.dir, "passing.txt"), []byte(text), 0o644)
}
