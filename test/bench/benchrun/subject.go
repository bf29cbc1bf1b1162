// Package benchrun runs the measurements of a benchmark on a system: it has the systems, the API client and the load
// they get, the processes whose memory and processor time is read, and the results.
package benchrun

import (
	"context"
	"time"

	"proa.dev/test/upstream"
)

// Subject is a system that can be measured.
type Subject struct {
	Name string
	// Front starts what the front suite measures; nil for a running server.
	Front func(context.Context) (*upstream.System, error)
	// Whole starts the whole control plane from nothing, with further flags;
	// nil for a running server.
	Whole    func(context.Context, ...string) (*upstream.System, error)
	Accounts bool // front has the controller that makes default ServiceAccounts
	// Simulates tells whether Whole can simulate nodes.
	Simulates bool

	Kubeconfig string // of a running server
	Pids       []int
}

// Trial is one measurement of one system.
type Trial struct {
	*Cluster
	Set  Settings
	R    *Result
	Pids []int
}

// CPU returns the processor time that the system has used; zero if its processes are not known.
func (t *Trial) CPU() (time.Duration, error) { return ProcessorTime(t.Pids) }

// Cost adds a row with the processor time since before, divided by n.
func (t *Trial) Cost(before time.Duration, n int, name string) error {
	after, err := t.CPU()
	if err != nil || len(t.Pids) == 0 {
		return err
	}
	t.R.Add(name, "ms", float64(after-before)/float64(time.Millisecond)/float64(n), Lower)
	return nil
}

// Step is one measurement of the suites that need a whole control plane.
type Step struct {
	Name string
	// Args are further flags for the system; a step with them is skipped for
	// systems that cannot simulate nodes.
	Args []string
	// Ours skips the step for upstream, which would take too long.
	Ours bool
	Run  func(context.Context, *Trial) error
}

// Steps runs measurements, each on a system of its own. One that fails is
// reported, and does not keep the others from running.
func (t *Subject) Steps(ctx context.Context, r *Result, set Settings, all []Step) {
	for _, s := range all {
		if s.Ours && t.Name == "upstream" && !set.Large || len(s.Args) > 0 && !t.Simulates || !set.Wanted(s.Name) {
			continue
		}
		Progress("%s: %s", t.Name, s.Name)
		start := time.Now()
		if err := t.step(ctx, r, set, s); err != nil {
			r.AddFailure(s.Name, err)
		}
		Progress("%s: %s took %s", t.Name, s.Name, time.Since(start).Round(100*time.Millisecond))
		if ctx.Err() != nil {
			return
		}
	}
}

func (t *Subject) step(ctx context.Context, r *Result, set Settings, s Step) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	kubeconfig, pids := t.Kubeconfig, t.Pids
	if t.Whole != nil {
		system, err := t.Whole(ctx, s.Args...)
		if err != nil {
			return err
		}
		defer system.Stop()
		defer cancel() // ends what runs in the background before the system
		kubeconfig, pids = system.Kubeconfig, system.Pids()
	}
	c, err := NewCluster(kubeconfig)
	if err != nil {
		return err
	}
	if err := c.waitServiceAccount(ctx, "default"); err != nil {
		return err
	}
	err = s.Run(ctx, &Trial{Cluster: c, Set: set, R: r, Pids: pids})
	if t.Whole == nil && err == nil {
		err = c.sweep(ctx)
	}
	return err
}
