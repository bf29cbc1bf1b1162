// Command bench measures a Kubernetes API server through its kubeconfig, and
// compares proa with upstream in one run:
//
//	go run ./test/bench --kubeconfig FILE [--pids 12,34]   measure what runs already
//	go run ./test/bench --proa bin/proa                    start proa, measure it
//	go run ./test/bench --proa bin/proa --upstream --out docs/benchmarks.md
//
// The measuring client runs on the same machine as the server it measures, and
// the two systems run one after the other, never together.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

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
	objects    int // objects for the memory measurement
}

type flags struct {
	kubeconfig, proa, out, json, pids, watchers string
	upstream, manager                           bool
	changed                                     string // settings that are not the defaults
	load                                        string // one-minute load average before the run
	settings
}

func parse() flags {
	var f flags
	flag.StringVar(&f.kubeconfig, "kubeconfig", "", "measure the running server of this kubeconfig")
	flag.StringVar(&f.pids, "pids", "", "its processes, separated by commas, for memory and CPU")
	flag.StringVar(&f.proa, "proa", "bin/proa", "proa binary to start and measure (empty: none)")
	flag.BoolVar(&f.upstream, "upstream", os.Getenv("UPSTREAM") == "1", "also build, start and measure upstream etcd and kube-apiserver")
	flag.BoolVar(&f.manager, "manager", os.Getenv("UPSTREAM_KCM") == "1", "with -upstream: also run a kube-controller-manager with the controllers for service accounts, root CA and namespaces, and count it")
	flag.StringVar(&f.out, "out", "", "write the results as Markdown to this file")
	flag.StringVar(&f.json, "json", "", "write the results as JSON to this file")
	flag.StringVar(&f.watchers, "watchers", "500,1000", "numbers of watchers for the fan-out")
	flag.IntVar(&f.starts, "starts", 5, "cold starts of each system")
	flag.DurationVar(&f.settle, "settle", 10*time.Second, "rest before memory is read")
	flag.DurationVar(&f.idle, "idle", 30*time.Second, "window of the idle CPU measurement")
	flag.IntVar(&f.sequential, "sequential", 1000, "requests of each kind, one after the other")
	flag.IntVar(&f.listSize, "list-size", 500, "objects in the namespace that is listed")
	flag.DurationVar(&f.window, "window", 6*time.Second, "duration of each parallel measurement")
	flag.IntVar(&f.parallel, "parallel", 32, "workers of the parallel measurements")
	flag.IntVar(&f.writes, "writes", 60, "writes fanned out to the watchers")
	flag.IntVar(&f.objects, "objects", 10000, "objects for the memory measurement")
	flag.Parse()
	f.settings.watchers = ints(f.watchers)
	f.load = loadAverage()
	flag.Visit(func(x *flag.Flag) {
		switch x.Name {
		case "proa", "out", "json", "kubeconfig", "pids", "upstream", "manager":
		default:
			f.changed = strings.TrimSpace(f.changed + " -" + x.Name + "=" + x.Value.String())
		}
	})
	return f
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
	if err := run(ctx, parse()); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, f flags) error {
	var results []*result
	if f.kubeconfig != "" {
		r := newResult("server")
		if err := measure(ctx, r, f.kubeconfig, ints(f.pids), f.settings); err != nil {
			return err
		}
		results = append(results, r)
	} else {
		if f.upstream {
			r, err := system(ctx, "upstream", f.settings, func(ctx context.Context) (*upstream.System, error) {
				return upstream.Start(ctx, managerOptions(f.manager))
			}, f.manager)
			if err != nil {
				return fmt.Errorf("upstream: %w", err)
			}
			results = append(results, r)
		}
		if f.proa != "" {
			r, err := system(ctx, "proa", f.settings, func(ctx context.Context) (*upstream.System, error) {
				return upstream.StartProa(ctx, f.proa)
			}, true)
			if err != nil {
				return fmt.Errorf("proa: %w", err)
			}
			results = append(results, r)
		}
	}
	return report(f, results)
}

func managerOptions(manager bool) upstream.Options {
	if !manager {
		return upstream.Options{}
	}
	return upstream.Options{Controllers: []string{"serviceaccount-controller", "root-ca-certificate-publisher-controller", "namespace-controller"}}
}

// system starts one system several times from nothing, and measures the last.
func system(ctx context.Context, name string, set settings, start func(context.Context) (*upstream.System, error), accounts bool) (*result, error) {
	r := newResult(name)
	var ready, account []time.Duration
	for i := range set.starts {
		progress("%s: cold start %d of %d", name, i+1, set.starts)
		s, err := start(ctx)
		if err != nil {
			return nil, err
		}
		ready = append(ready, s.Ready)
		if accounts {
			if err := waitAccount(ctx, s); err != nil {
				s.Stop()
				return nil, err
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
			return nil, err
		}
	}
	r.prepend("cold start to default ServiceAccount", "ms", millis(account, 50), lower)
	r.prepend("cold start to /readyz (median of "+strconv.Itoa(set.starts)+")", "ms", millis(ready, 50), lower)
	return r, nil
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

func report(f flags, results []*result) error {
	fmt.Println(table(results))
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
		return os.WriteFile(f.out, []byte(document(f, results)), 0o644)
	}
	return nil
}

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
