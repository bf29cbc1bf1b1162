// Command cmd starts a cluster with containers and sends steady traffic to it while it changes:
//
//	go run ./test/chaos/cmd rollouts -count 10 -rate 500 -nodes 2
//	go run ./test/chaos/cmd events -count 24 -rate 60 -nodes 3
//
// The first rolls out a Deployment again and again, and no request may fail. The second kills nodes and agents and cuts links, and
// reports how long traffic was disturbed each time; it fails if traffic does not recover by itself.
//
// The result is a table on stdout, and with -out a section of a document; progress is printed on stderr. It needs root, bin/proa
// with its parts beside it, and the images of the tests, which it builds. Everything that it creates is removed at the end.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"proa.dev/test/chaos"
	images "proa.dev/test/images/build"
	"proa.dev/test/ports"
	"proa.dev/test/upstream"
)

type flags struct {
	proa    string
	nodes   int
	rate    float64
	count   int
	ingress bool
	keep    bool
	extra   string
	seed    uint64
	only    string
	data    string
	port    int // of the ingress
	file    string
	out     string
	run     chaos.Run
}

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say what to do: rollouts or events")
	}
	var f flags
	set := flag.NewFlagSet(args[0], flag.ExitOnError)
	set.StringVar(&f.proa, "proa", "bin/proa", "the proa to start; its parts are beside it")
	set.IntVar(&f.nodes, "nodes", 1, "nodes of the cluster")
	set.Float64Var(&f.rate, "rate", 500, "requests a second, of all clients together")
	set.IntVar(&f.count, "count", 10, "how many rollouts or events")
	set.Uint64Var(&f.seed, "seed", uint64(time.Now().Unix()), "of the dice that choose events")
	set.StringVar(&f.only, "only", "", "the kinds of events, separated by commas: "+strings.Join(chaos.Kinds(), ", "))
	set.BoolVar(&f.ingress, "ingress", true, "send traffic through the ingress too")
	set.BoolVar(&f.keep, "keep", false, "leave the cluster as it is when something failed")
	set.StringVar(&f.file, "failures", "", "write every request that failed to this file, as lines of JSON")
	set.StringVar(&f.out, "out", "", "write the result into the section of this document that is about it, as docs/benchmarks.md")
	set.StringVar(&f.extra, "up", "", "further flags for proa up, separated by spaces")
	if err := set.Parse(args[1:]); err != nil {
		return err
	}
	words := []string{"go run -tags grpcnotrace ./test/chaos/cmd", args[0]}
	set.Visit(func(x *flag.Flag) {
		if x.Name != "out" && x.Name != "proa" && x.Name != "failures" && x.Name != "keep" {
			words = append(words, "-"+x.Name, x.Value.String())
		}
	})
	f.run = chaos.Begin(strings.Join(words, " "))
	return f.withCluster(ctx, args[0])
}

// withCluster starts a cluster, calls a function with it, and removes it.
func (f flags) withCluster(ctx context.Context, what string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("a node with containers needs root")
	}
	bins, err := upstream.Build(ctx, "kubectl")
	if err != nil {
		return err
	}
	root, err := upstream.Root()
	if err != nil {
		return err
	}
	archives, err := images.Archives(ctx, "tool")
	if err != nil {
		return err
	}
	if f.proa, err = filepath.Abs(f.proa); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "chaos-")
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "data")
	f.data = data
	defer func() {
		if f.keep && err != nil {
			fmt.Fprintf(os.Stderr, "the cluster is left as it is: %s --data-dir %s\n", f.proa, data)
			return
		}
		err = errors.Join(err, f.command(context.WithoutCancel(ctx), "down", "--purge", "--data-dir", data), os.RemoveAll(dir))
	}()
	free, err := ports.Reserve(3)
	if err != nil {
		return err
	}
	f.port = free[2]
	up := []string{"up", "--data-dir", data, "--listen", fmt.Sprint("127.0.0.1:", free[0]), "--node-port", strconv.Itoa(free[1]), "--name",
		filepath.Base(dir), "--no-merge",
		"--image-gc-high-threshold", "100", "--eviction-hard", "memory.available<50Mi,nodefs.available<1%,imagefs.available<1%"}
	if f.nodes > 1 {
		up = append(up, "--nodes", fmt.Sprint(f.nodes))
	}
	if f.ingress {
		up = append(up, "--ingress-http-port", strconv.Itoa(f.port), "--ingress-https-port", "0")
	}
	up = append(up, strings.Fields(f.extra)...)
	if err := f.command(ctx, up...); err != nil {
		return err
	}
	if err := f.command(ctx, append([]string{"images", "load", "--data-dir", data}, archives...)...); err != nil {
		return err
	}
	tool, err := chaos.BuildTool(ctx, root, dir)
	if err != nil {
		return err
	}
	start := time.Now()
	c := &chaos.Cluster{Kubectl: bins["kubectl"], Kubeconfig: filepath.Join(data, "admin.kubeconfig"), Tool: tool,
		Log: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		}}
	if c.Failed, err = f.failureWriter(); err != nil {
		return err
	}
	switch what {
	case "rollouts":
		return f.rollouts(ctx, c)
	case "events":
		return f.events(ctx, c)
	}
	return fmt.Errorf("%q is nothing that this program can do; say rollouts or events", what)
}

func (f flags) events(ctx context.Context, c *chaos.Cluster) error {
	e := chaos.Events{Count: f.count, Rate: f.rate, Seed: f.seed,
		Folder: func(node string) string { return filepath.Join(f.data, "nodes", node) }}
	if f.only != "" {
		e.Kinds = strings.Split(f.only, ",")
	}
	events, out, err := e.Run(ctx, c)
	fmt.Printf("Seed %d, %g requests a second.\n\n%s\n", f.seed, f.rate, chaos.EventTable(events))
	if out != nil {
		fmt.Println(chaos.Table(out.Totals, out.Names))
	}
	if err != nil {
		return err
	}
	return f.write(chaos.EventSection(f.run, e, events, out))
}

// write writes a section into the document.
func (f flags) write(title, text string) error {
	if f.out == "" {
		return nil
	}
	document, err := os.ReadFile(f.out)
	if err != nil {
		return err
	}
	return os.WriteFile(f.out, []byte(chaos.Put(string(document), title, text)), 0o644)
}

func (f flags) rollouts(ctx context.Context, c *chaos.Cluster) error {
	r := chaos.Rollouts{Count: f.count, Rate: f.rate}
	if f.ingress {
		r.IngressPort = f.port
	}
	out, err := r.Run(ctx, c)
	if out != nil {
		fmt.Println(out.Text())
	}
	if err != nil {
		return err
	}
	err = f.write(chaos.RolloutSection(f.run, r, out))
	if len(out.Failures) > 0 {
		err = errors.Join(err, errors.New("requests failed"))
	}
	return err
}

// failureWriter returns a function that writes failures to a file as they happen.
func (f flags) failureWriter() (func(chaos.Failure), error) {
	if f.file == "" {
		return nil, nil
	}
	file, err := os.Create(f.file)
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex // guards lines: many clients tell
	lines := json.NewEncoder(file)
	return func(x chaos.Failure) {
		mu.Lock()
		defer mu.Unlock()
		_ = lines.Encode(x)
	}, nil
}

// command runs proa, and prints its output.
func (f flags) command(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, f.proa, args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("proa %s: %w", args[0], err)
	}
	return nil
}
