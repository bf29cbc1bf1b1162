// Command definitions measures what CustomResourceDefinitions cost a server whose resources have no objects: until they
// are served, at idle, and after a restart. It starts the system itself, proa or with -upstream kube-apiserver and
// etcd, and prints a table.
//
//	go run -tags grpcnotrace ./test/bench/definitions -count 1000 -groups 50
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"proa.dev/test/upstream"
)

// settings are the flags.
type settings struct {
	proa          string
	upstream      bool
	count, groups int
	limit, rest   time.Duration
}

func main() {
	var f settings
	flag.StringVar(&f.proa, "proa", "bin/proa", "the proa binary")
	flag.BoolVar(&f.upstream, "upstream", false, "measure upstream's kube-apiserver and etcd instead")
	flag.IntVar(&f.count, "count", 1000, "definitions to make")
	flag.IntVar(&f.groups, "groups", 50, "groups to spread them over")
	flag.DurationVar(&f.limit, "limit", 10*time.Minute, "how long to wait until all are served")
	flag.DurationVar(&f.rest, "rest", 75*time.Second, "how long a process takes to come to rest")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := f.run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "definitions:", err)
		cancel()
		os.Exit(1)
	}
}

// run measures one system.
func (f settings) run(ctx context.Context) error {
	if f.count < 1 || f.groups < 1 {
		return errors.New("-count and -groups must be at least 1")
	}
	system, err := f.start(ctx)
	if err != nil {
		return err
	}
	defer system.Stop()
	t := &trial{settings: f, system: system}
	fmt.Printf("%s, %d definitions in %d groups, load of the machine %s\n", system.Name, f.count, f.groups, load())
	for _, step := range []func(context.Context) error{t.empty, t.create, t.restarted, t.use} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (f settings) start(ctx context.Context) (*upstream.System, error) {
	if f.upstream {
		return upstream.Start(ctx, upstream.Options{})
	}
	return upstream.StartProa(ctx, f.proa)
}

// trial is one measurement.
type trial struct {
	settings
	system *upstream.System
	none   int64 // the memory at idle after a restart without definitions
}

func show(what, unit string, value float64) { fmt.Printf("%-72s %-4s %.1f\n", what, unit, value) }

// settle shows how long a start took and what it cost, and returns the memory after half a minute.
func (t *trial) settle(ctx context.Context, what string) (int64, error) {
	show("ready after a restart, "+what, "ms", float64(t.system.Ready.Microseconds())/1000)
	if err := sleep(ctx, 5*time.Second-t.system.Ready); err != nil {
		return 0, err
	}
	spent, err := processorTime(t.system.Pids())
	if err != nil {
		return 0, err
	}
	show("processor time of the first 5 s, or until it is ready, "+what, "ms", float64(spent.Milliseconds()))
	if err := sleep(ctx, 25*time.Second); err != nil {
		return 0, err
	}
	size, err := anonymous(t.system.Pids())
	show("memory (anonymous) half a minute after a restart, "+what, "MiB", float64(size)/(1<<20))
	return size, err
}

// empty measures the system before there are definitions.
func (t *trial) empty(ctx context.Context) (err error) {
	if err = t.system.Restart(ctx); err == nil {
		t.none, err = t.settle(ctx, "none")
	}
	return err
}

// create makes the definitions and waits until all are served.
func (t *trial) create(ctx context.Context) error {
	d, err := newDoor(t.system)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := each(t.count, 8, func(i int) error { return d.post(ctx, definitionsPath, t.definition(i)) }); err != nil {
		return err
	}
	show("creation", "s", time.Since(start).Seconds())
	// Each resource is listed, which leaves a cache of it behind in a process of ours: what follows is with these.
	missing, until := t.count, start.Add(t.limit)
	served := make([]bool, t.count)
	for missing > 0 && time.Now().Before(until) {
		for i := range served {
			if served[i] || ctx.Err() != nil {
				continue
			}
			if _, err := d.send(ctx, http.MethodGet, t.path(i), nil, ""); err == nil {
				served[i], missing = true, missing-1
			}
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	if missing > 0 {
		fmt.Printf("not served after %s: %d\n", t.limit, missing)
	} else {
		show("until all are served", "s", time.Since(start).Seconds())
	}
	if err := sleep(ctx, t.rest); err != nil {
		return err
	}
	size, err := anonymous(t.system.Pids())
	show(fmt.Sprintf("memory (anonymous) %s after that", t.rest), "MiB", float64(size)/(1<<20))
	return err
}

// restarted measures a start with the definitions.
func (t *trial) restarted(ctx context.Context) error {
	if err := t.system.Restart(ctx); err != nil {
		return err
	}
	size, err := t.settle(ctx, fmt.Sprint(t.count))
	show("that is, for each definition", "KiB", float64(size-t.none)/1024/float64(t.count))
	return err
}

// use measures the first requests that need definitions.
func (t *trial) use(ctx context.Context) error {
	d, err := newDoor(t.system)
	if err != nil {
		return err
	}
	if err := d.post(ctx, "/api/v1/namespaces", object{"metadata": object{"name": "bench"}}); err != nil {
		return err
	}
	timed := func(what, method, path string, body any, accept string) error {
		start := time.Now()
		answer, err := d.send(ctx, method, path, body, accept)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		show(fmt.Sprintf("%s (%d KiB)", what, len(answer)>>10), "ms", float64(time.Since(start).Microseconds())/1000)
		return nil
	}
	one := definitionsPath + "/" + t.name(t.count/2)
	return errors.Join(
		timed("discovery", http.MethodGet, "/apis", nil, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"),
		timed("the first list of a resource", http.MethodGet, t.path(0), nil, ""),
		timed("the first create of an object", http.MethodPost, t.path(0), t.object(0, "a"), ""),
		timed("the second create", http.MethodPost, t.path(0), t.object(0, "b"), ""),
		timed("get of a definition", http.MethodGet, one, nil, ""),
		timed("list of all definitions", http.MethodGet, definitionsPath, nil, ""),
	)
}

// each does something for all numbers below n, some at a time, and returns the first error.
func each(n, workers int, do func(int) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make([]error, workers)
	for w := range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && errs[w] == nil; i = next.Add(1) - 1 {
				errs[w] = do(int(i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// load is the load of the machine in the last minute.
func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
