package main

import (
	"context"
	"os/exec"
	"strings"
	"time"

	"proa.dev/test/upstream"
)

// subject is a system that can be measured.
type subject struct {
	name string
	// front starts what the front suite measures; nil for a running server.
	front func(context.Context) (*upstream.System, error)
	// whole starts the whole control plane from nothing, with further flags;
	// nil for a running server.
	whole func(context.Context, ...string) (*upstream.System, error)
	// agent starts a cluster with a node that runs containers; nil for a running server.
	agent agentStart
	// edge starts the last hop: Services and names on a node; nil for a running server.
	edge     edgeStart
	accounts bool // front has the controller that makes default ServiceAccounts
	// simulates tells that whole can be asked to simulate nodes.
	simulates bool

	kubeconfig string // of a running server
	pids       []int
}

// systems are those of this run, in the order they are measured.
func (f flags) systems() []*subject {
	if f.kubeconfig != "" {
		return []*subject{{name: "server", kubeconfig: f.kubeconfig, pids: ints(f.pids)}}
	}
	var out []*subject
	if f.upstream {
		out = append(out, &subject{
			name: "upstream",
			front: func(ctx context.Context) (*upstream.System, error) {
				return upstream.Start(ctx, upstream.Options{Whole: f.manager})
			},
			whole: func(ctx context.Context, _ ...string) (*upstream.System, error) {
				// Thousands of nodes on a busy machine renew late now and then;
				// a node that is given up would spoil the measurement.
				return upstream.Start(ctx, upstream.Options{Whole: true, ManagerArgs: []string{"--node-monitor-grace-period=10m"}})
			},
			agent:    startKubelet,
			edge:     startUpstreamEdge,
			accounts: f.manager,
		})
	}
	if f.proa != "" {
		out = append(out, &subject{
			name:  "proa",
			front: func(ctx context.Context) (*upstream.System, error) { return upstream.StartProa(ctx, f.proa) },
			whole: func(ctx context.Context, args ...string) (*upstream.System, error) {
				return upstream.StartProa(ctx, f.proa, args...)
			},
			agent:     startAgent(f.proa),
			edge:      startEdge,
			accounts:  true,
			simulates: canSimulate(f.proa),
		})
	}
	return out
}

// canSimulate tells whether a proa binary knows the flag for simulated nodes.
func canSimulate(bin string) bool {
	out, _ := exec.Command(bin, "server", "--help").CombinedOutput()
	return strings.Contains(string(out), "--simulate")
}

// trial is one measurement of one system.
type trial struct {
	*cluster
	set  settings
	r    *result
	pids []int
}

// cpu is the processor time the system has used; nothing when its processes
// are not known.
func (t *trial) cpu() (time.Duration, error) { return cpu(t.pids) }

// cost adds the processor time since before, shared out among n things.
func (t *trial) cost(before time.Duration, n int, name string) error {
	after, err := t.cpu()
	if err != nil || len(t.pids) == 0 {
		return err
	}
	t.r.add(name, "ms", float64(after-before)/float64(time.Millisecond)/float64(n), lower)
	return nil
}

// step is one measurement of the suites that need a whole control plane.
type step struct {
	name string
	// args are further flags for the system; a step with them is skipped for
	// systems that cannot simulate nodes.
	args []string
	// ours keeps the step away from upstream, which would take too long.
	ours bool
	run  func(context.Context, *trial) error
}

// steps runs measurements, each on a system of its own. One that fails is
// reported, and does not keep the others from running.
func (t *subject) steps(ctx context.Context, r *result, set settings, all []step) {
	for _, s := range all {
		if s.ours && t.name == "upstream" && !set.large || len(s.args) > 0 && !t.simulates || !set.wanted(s.name) {
			continue
		}
		progress("%s: %s", t.name, s.name)
		start := time.Now()
		if err := t.step(ctx, r, set, s); err != nil {
			r.failed(s.name, err)
		}
		progress("%s: %s took %s", t.name, s.name, time.Since(start).Round(100*time.Millisecond))
		if ctx.Err() != nil {
			return
		}
	}
}

func (t *subject) step(ctx context.Context, r *result, set settings, s step) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kubeconfig, pids := t.kubeconfig, t.pids
	if t.whole != nil {
		system, err := t.whole(ctx, s.args...)
		if err != nil {
			return err
		}
		defer system.Stop()
		defer cancel() // ends what runs in the background before the system
		kubeconfig, pids = system.Kubeconfig, system.Pids()
	}
	c, err := newCluster(kubeconfig)
	if err != nil {
		return err
	}
	if err := c.waitServiceAccount(ctx, "default"); err != nil {
		return err
	}
	err = s.run(ctx, &trial{cluster: c, set: set, r: r, pids: pids})
	if t.whole == nil && err == nil {
		err = c.sweep(ctx)
	}
	return err
}
