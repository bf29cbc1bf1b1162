package main

import (
	"context"
	"os/exec"
	"strings"

	"proa.dev/test/bench/benchrun"
	"proa.dev/test/upstream"
)

// systems returns the systems of this run, in the order in which they are measured.
func (f flags) systems() []*benchrun.Subject {
	if f.kubeconfig != "" {
		return []*benchrun.Subject{{Name: "server", Kubeconfig: f.kubeconfig, Pids: ints(f.pids)}}
	}
	var out []*benchrun.Subject
	if f.upstream {
		out = append(out, &benchrun.Subject{
			Name: "upstream",
			Front: func(ctx context.Context) (*upstream.System, error) {
				return upstream.Start(ctx, upstream.Options{Whole: f.manager})
			},
			Whole: func(ctx context.Context, _ ...string) (*upstream.System, error) {
				// Thousands of nodes on a busy machine renew late now and then;
				// a node that is given up would spoil the measurement.
				return upstream.Start(ctx, upstream.Options{Whole: true, ManagerArgs: []string{"--node-monitor-grace-period=10m"}})
			},
			Accounts: f.manager,
		})
	}
	if f.proa != "" {
		out = append(out, &benchrun.Subject{
			Name:  "proa",
			Front: func(ctx context.Context) (*upstream.System, error) { return upstream.StartProa(ctx, f.proa) },
			Whole: func(ctx context.Context, args ...string) (*upstream.System, error) {
				return upstream.StartProa(ctx, f.proa, args...)
			},
			Accounts:  true,
			Simulates: canSimulate(f.proa),
		})
	}
	return out
}

// canSimulate tells whether a proa binary knows the flag for simulated nodes.
func canSimulate(bin string) bool {
	out, _ := exec.Command(bin, "server", "--help").CombinedOutput()
	return strings.Contains(string(out), "--simulate")
}
