package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runner runs test programs against one cluster.
type runner struct {
	flags
	e2e, kubectl, kubeconfig string
	dir                      string
}

// all runs the chosen tests: those that may run beside others in batches, the
// serial ones after them one batch at a time, and what failed once more.
func (r *runner) all(ctx context.Context, chosen []test) (map[string]result, error) {
	dir, err := os.MkdirTemp("", "conformance-")
	if err != nil {
		return nil, err
	}
	if r.keep {
		fmt.Fprintln(os.Stderr, "logs and reports in", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	r.dir = dir
	results := map[string]result{}
	if err := r.round(ctx, "first", chosen, results); err != nil {
		return nil, err
	}
	var again []test
	for _, t := range chosen {
		if results[t.Name].State != "passed" && results[t.Name].State != "skipped" {
			again = append(again, t)
		}
	}
	if len(again) == 0 {
		return results, nil
	}
	fmt.Fprintf(os.Stderr, "%d did not pass, once more\n", len(again))
	second := map[string]result{}
	if err := r.round(ctx, "again", again, second); err != nil {
		return nil, err
	}
	for name, x := range second {
		x.Retried = true
		results[name] = x
	}
	return results, nil
}

func (r *runner) round(ctx context.Context, name string, tests []test, results map[string]result) error {
	var together, alone []test
	for _, t := range tests {
		if t.Serial {
			alone = append(alone, t)
		} else {
			together = append(together, t)
		}
	}
	if err := r.batches(ctx, name, deal(together, r.batch, r.procs), r.procs, results); err != nil {
		return err
	}
	return r.batches(ctx, name+"-serial", deal(alone, r.batch, 1), 1, results)
}

// deal spreads tests over batches, neighbours apart: the list is ordered by
// duration.
func deal(tests []test, size, procs int) [][]test {
	if len(tests) == 0 {
		return nil
	}
	n := max((len(tests)+size-1)/size, min(procs, len(tests)))
	out := make([][]test, n)
	for i, t := range tests {
		out[i%n] = append(out[i%n], t)
	}
	return out
}

func (r *runner) batches(ctx context.Context, name string, batches [][]test, procs int, results map[string]result) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, procs)
	done := 0
	for i, batch := range batches {
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			got := r.batchOf(ctx, filepath.Join(r.dir, fmt.Sprintf("%s-%d", name, i)), batch)
			mu.Lock()
			defer mu.Unlock()
			passed := 0
			for n, x := range got {
				results[n] = x
				if x.State == "passed" {
					passed++
				}
			}
			done++
			fmt.Fprintf(os.Stderr, "%s: batch %d of %d: %d of %d passed\n", name, done, len(batches), passed, len(batch))
		})
	}
	wg.Wait()
	return ctx.Err()
}

// batchOf runs one test program with a list of tests.
func (r *runner) batchOf(ctx context.Context, dir string, tests []test) map[string]result {
	out := map[string]result{}
	reason := "the test program gave no report"
	if err := r.program(ctx, dir, tests); err != nil {
		reason = err.Error()
	}
	report, err := readReport(filepath.Join(dir, "report.json"))
	if err != nil {
		report = map[string]result{}
	}
	for _, t := range tests {
		x, ok := report[t.Name]
		if !ok {
			x = result{State: "unfinished", Reason: firstLine(reason)}
		}
		x.Date = time.Now().UTC().Format(time.DateOnly)
		if r.real {
			x.Nodes = r.realNodes
		}
		out[t.Name] = x
	}
	return out
}

func (r *runner) program(ctx context.Context, dir string, tests []test) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names := make([]string, len(tests))
	for i, t := range tests {
		names[i] = regexp.QuoteMeta(t.Name)
	}
	args := []string{
		"--kubeconfig=" + r.kubeconfig, "--provider=skeleton", "--kubectl-path=" + r.kubectl,
		"--report-dir=" + dir, "--disable-log-dump", "--dump-logs-on-failure=false",
		"--ginkgo.focus=(?:" + strings.Join(names, "|") + ")$", "--ginkgo.no-color",
		"--ginkgo.json-report=" + filepath.Join(dir, "report.json"), "--ginkgo.timeout=" + r.limit.String(),
	}
	if !r.withNodes {
		args = append(args, "--num-nodes=0", "--allowed-not-ready-nodes=-1")
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(ctx, r.limit+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.e2e, args...)
	cmd.Dir = dir
	// The suite looks for kubectl beside the path it is given and in PATH.
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(r.kubectl)+":"+os.Getenv("PATH"), "KUBECONFIG="+r.kubeconfig)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("test program: %w: %s", err, lastLines(log.Name()))
	}
	return nil
}

func lastLines(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > 500 {
		_, _ = f.Seek(-500, io.SeekEnd)
	}
	data, _ := io.ReadAll(f)
	return strings.Join(strings.Fields(string(data)), " ")
}

// suiteReport is the part of Ginkgo's JSON report that is read.
type suiteReport struct {
	SuiteSucceeded             bool
	SpecialSuiteFailureReasons []string
	SpecReports                []struct {
		ContainerHierarchyTexts []string
		LeafNodeText            string
		LeafNodeType            string
		State                   string
		RunTime                 time.Duration
		Failure                 struct{ Message string }
	}
}

// readReport returns the results of the tests that ran.
func readReport(file string) (map[string]result, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var suites []suiteReport
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	out := map[string]result{}
	for _, suite := range suites {
		setup := ""
		for _, s := range suite.SpecReports {
			if s.LeafNodeType != "It" {
				if s.State == "failed" {
					setup = s.LeafNodeType + ": " + firstLine(s.Failure.Message)
				}
				continue
			}
			name := strings.Join(append(s.ContainerHierarchyTexts, s.LeafNodeText), " ")
			x := result{State: s.State, Seconds: s.RunTime.Round(100 * time.Millisecond).Seconds(), Reason: firstLine(s.Failure.Message)}
			switch s.State {
			case "passed":
			case "skipped", "pending":
				// Tests outside the focus are reported as skipped too.
				if s.Failure.Message == "" {
					continue
				}
				x.State = "skipped"
			default:
				x.State = "failed"
			}
			out[name] = x
		}
		if setup != "" {
			out[""] = result{State: "failed", Reason: setup}
		}
	}
	return out, nil
}

// firstLine returns the line of a message that has the error.
func firstLine(s string) string {
	line, rest, _ := strings.Cut(strings.TrimSpace(s), "\n")
	most := 300
	if line = strings.TrimSpace(line); line == "Expected" { // a comparison, whose parts are on the lines that follow
		line, most = strings.Join(strings.Fields(line+" "+rest), " "), 100
	}
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "..."
	}
	return line
}
