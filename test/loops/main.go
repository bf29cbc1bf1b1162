// Command loops compares the controllers and the scheduler of proa with those of upstream. It runs the same scenarios on both
// systems over HTTP, simulates the kubelets of both, waits until each is idle, and compares what clients see: objects, conditions,
// Events and refusals. The records of upstream are kept in a folder, and made again only when a scenario, or how it is run, has
// changed.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"proa.dev/test/upstream"
)

type options struct {
	bin, docs, run string
	fresh, verbose bool
	many           int
	idleTime       time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin/proa", "the proa `program` to compare")
	flag.StringVar(&o.docs, "docs", "", "`file` to write the table to")
	flag.StringVar(&o.run, "run", "", "only scenarios whose names start with one of these, separated by commas")
	flag.BoolVar(&o.fresh, "fresh", false, "play all scenarios on upstream again, even when there are recorded answers")
	flag.BoolVar(&o.verbose, "v", false, "print explained differences too")
	flag.IntVar(&o.many, "many", 6, "how many scenarios are played at the same time")
	flag.DurationVar(&o.idleTime, "quiet", 3*time.Second, "how long nothing may change for a scenario to count as idle")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := compareAll(ctx, o); err != nil {
		slog.Error("loops", "error", err)
		stop()
		os.Exit(1)
	}
}

// version is part of the key of upstream's records: raise it when the content of records changes.
const version = "1"

func compareAll(ctx context.Context, o options) error {
	root, err := upstream.Root()
	if err != nil {
		return err
	}
	home := filepath.Join(root, "test", "loops")
	var only []string
	if o.run != "" {
		only = strings.Split(o.run, ",")
	}
	all, err := readScenarios(filepath.Join(home, "scenarios"), only)
	if err != nil {
		return err
	}
	theirs, err := o.upstream(ctx, all)
	if err != nil {
		return err
	}
	ours, err := o.proa(ctx, all)
	if err != nil {
		return err
	}
	explained, err := readReasons(filepath.Join(home, "explained.txt"))
	if err != nil {
		return err
	}
	report := compareRecords(all, theirs, ours, explained)
	report.print(os.Stdout, o.verbose)
	if o.docs != "" {
		if err := os.WriteFile(o.docs, []byte(report.markdown()), 0o644); err != nil {
			return err
		}
	}
	if n := report.open(); n > 0 {
		return fmt.Errorf("%d differences have no reason", n)
	}
	return nil
}

// upstream returns upstream's record of each scenario, and runs the scenarios that have none yet.
func (o options) upstream(ctx context.Context, all []*scenario) (map[string]*record, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "proa", "loops")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	file := func(s *scenario) string {
		return filepath.Join(cache, fmt.Sprintf("%s-%x.json", s.name, sha256.Sum256(append([]byte(version), s.file...))))
	}
	out := map[string]*record{}
	var missing []*scenario
	for _, s := range all {
		var r record
		data, err := os.ReadFile(file(s))
		if err == nil && !o.fresh && json.Unmarshal(data, &r) == nil {
			out[s.name] = &r
			continue
		}
		missing = append(missing, s)
	}
	if len(missing) == 0 {
		return out, nil
	}
	fmt.Printf("upstream: playing %d scenarios\n", len(missing))
	up, err := upstream.Start(ctx, upstream.Options{Whole: true})
	if err != nil {
		return nil, err
	}
	defer up.Stop()
	// Each record is written to its file at once and read back, so that numbers have the same type as in earlier records.
	return out, o.playAll(ctx, up, missing, func(s *scenario, r *record) error {
		data, err := json.MarshalIndent(r, "", " ")
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		out[s.name] = &record{}
		return errors.Join(os.WriteFile(file(s), data, 0o644), json.Unmarshal(data, out[s.name]))
	})
}

func (o options) proa(ctx context.Context, all []*scenario) (map[string]*record, error) {
	fmt.Printf("proa: playing %d scenarios\n", len(all))
	s, err := upstream.StartProa(ctx, o.bin)
	if err != nil {
		return nil, err
	}
	defer s.Stop()
	out := map[string]*record{}
	return out, o.playAll(ctx, s, all, func(s *scenario, r *record) error {
		out[s.name] = r
		return nil
	})
}

// playAll runs scenarios, those that change nodes one at a time after the others, and calls keep with each record.
func (o options) playAll(ctx context.Context, s *upstream.System, all []*scenario, keep func(*scenario, *record) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer loops.Wait()
	defer cancel()
	d, err := open(s)
	if err != nil {
		return err
	}
	k := &kubelets{api: d, silent: map[string]bool{}}
	sys := &system{d, k, &observer{api: d, kubelets: k, views: map[string]*view{}}, o.idleTime}
	loops.Go(func() { k.renew(ctx) })
	loops.Go(func() { sys.observer.watch(ctx) })
	if err := sys.addNodes(ctx, "n1", "n2"); err != nil {
		return err
	}
	var mu sync.Mutex
	var errs []error
	one := func(sc *scenario) {
		started := time.Now()
		r := sys.play(ctx, sc)
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, keep(sc, r))
		fmt.Printf("  %s %s %.0fs %s\n", s.Name, sc.name, time.Since(started).Seconds(), strings.Join(r.Answers, "; "))
	}
	slots := make(chan struct{}, o.many)
	var wg sync.WaitGroup
	for _, sc := range all {
		if sc.alone {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			one(sc)
		})
	}
	wg.Wait()
	clean := false
	for _, sc := range all {
		if !sc.alone {
			continue
		}
		if !clean {
			sys.clear(ctx, all)
		}
		one(sc)
		sys.clear(ctx, []*scenario{sc})
		clean = true
	}
	return errors.Join(append(errs, ctx.Err(), dead(s))...)
}

func dead(s *upstream.System) error {
	if text := s.Dead(); text != "" {
		return errors.New(text)
	}
	return nil
}

// addNodes creates nodes as their kubelets would.
func (s *system) addNodes(ctx context.Context, names ...string) error {
	for _, name := range names {
		if _, err := s.api.do(ctx, http.MethodPost, "/api/v1/nodes", plainJSON, node(name)); err != nil {
			return err
		}
	}
	// A new node is tainted until the node controller has seen that it is ready.
	for _, name := range names {
		for limit := time.Now().Add(untilLimit); time.Now().Before(limit); {
			got, err := s.api.do(ctx, http.MethodGet, "/api/v1/nodes/"+name, plainJSON, nil)
			if err != nil {
				return err
			}
			if at(got, "spec", "taints") == nil {
				break
			}
			if err := wait(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

// clear removes the objects of scenarios, so that the next one starts with two new nodes and no Pods.
func (s *system) clear(ctx context.Context, all []*scenario) {
	list := func(path string) []object {
		got, err := s.api.do(ctx, http.MethodGet, path, plainJSON, nil)
		if err != nil {
			return nil
		}
		return items(got, "items")
	}
	mine := func(o object) bool {
		name, _, _ := strings.Cut(text(o, "metadata", "name"), "--")
		return slices.ContainsFunc(all, func(sc *scenario) bool { return sc.name == name })
	}
	s.kubelets.reset(true)
	defer s.kubelets.reset(false)
	for limit := time.Now().Add(untilLimit); time.Now().Before(limit); {
		left := 0
		for _, o := range list("/api/v1/namespaces") {
			if !mine(o) {
				continue
			}
			left++
			if at(o, "metadata", "deletionTimestamp") == nil {
				_, _ = s.api.do(ctx, http.MethodDelete, "/api/v1/namespaces/"+text(o, "metadata", "name"), plainJSON, nil)
			}
		}
		if left == 0 || wait(ctx, 300*time.Millisecond) != nil {
			break
		}
	}
	for _, path := range []string{"/api/v1/persistentvolumes", "/apis/storage.k8s.io/v1/storageclasses",
		"/apis/scheduling.k8s.io/v1/priorityclasses"} {
		for _, o := range list(path) {
			if mine(o) {
				_, _ = s.api.do(ctx, http.MethodDelete, path+"/"+text(o, "metadata", "name"), plainJSON, nil)
			}
		}
	}
	for _, o := range list("/api/v1/nodes") {
		_, _ = s.api.do(ctx, http.MethodDelete, "/api/v1/nodes/"+text(o, "metadata", "name"), plainJSON, nil)
	}
	if err := s.addNodes(ctx, "n1", "n2"); err != nil {
		slog.Error("loops: nodes for the next scenario", "error", err)
	}
}

// node returns a node that is ready and has capacity.
func node(name string) object {
	conditions := []any{}
	for _, c := range [][2]string{{"MemoryPressure", "False"}, {"DiskPressure", "False"}, {"PIDPressure", "False"}, {"Ready", "True"}} {
		conditions = append(conditions,
			object{"type": c[0], "status": c[1], "reason": "Kubelet" + c[0], "message": "played", "lastHeartbeatTime": now(),
				"lastTransitionTime": now()})
	}
	room := object{"cpu": "4", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi"}
	return object{
		"apiVersion": "v1", "kind": "Node",
		"metadata": object{"name": name,
			"labels": object{"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}},
		"status": object{
			"capacity": room, "allocatable": room, "conditions": conditions,
			"addresses": []any{object{"type": "InternalIP", "address": "10.9.0.1"}, object{"type": "Hostname", "address": name}},
		},
	}
}
