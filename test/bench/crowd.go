package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
)

// crowd is a large cluster of simulated nodes, full of Pods that run.
type crowd struct {
	nodes, deployments, replicas int
}

// newCrowd returns the crowd at the scale of the run; at full scale it has as many Pods as 5,000 nodes usually run.
func newCrowd(set benchrun.Settings) crowd {
	return crowd{nodes: set.Scaled(5000), deployments: set.Scaled(100), replicas: 1000}
}

func (c crowd) pods() int { return c.deployments * c.replicas }

func (c crowd) title() string {
	return fmt.Sprintf("%d simulated nodes and %d Pods", c.nodes, c.pods())
}

// step returns the measurement. It is not run on upstream, which cannot simulate nodes.
func (c crowd) step() benchrun.Step {
	return benchrun.Step{Name: "100000 Pods", Args: []string{"--simulate", fmt.Sprint(c.nodes)}, Ours: true, Run: c.run}
}

// run fills the cluster by Deployments, all at once, and measures what that took, and what the cluster costs at idle.
func (c crowd) run(ctx context.Context, t *benchrun.Trial) error {
	if err := t.WaitNodes(ctx, c.nodes, benchrun.NotReadyReason); err != nil {
		return err
	}
	if err := wait.Sleep(ctx, t.Set.Settle); err != nil {
		return err
	}
	empty, err := benchrun.ReadUsage(t.Pids)
	if err != nil {
		return err
	}
	ns, err := t.NewNamespace(ctx, "crowd")
	if err != nil {
		return err
	}
	all := benchrun.ResourceClient{Door: t.Apps, Namespace: ns, Resource: "deployments"}
	states := make(chan benchrun.Seen, 1<<16)
	if err := all.Follow(ctx, func(s benchrun.Seen) { states <- s }); err != nil {
		return err
	}
	before, err := t.CPU()
	if err != nil {
		return err
	}
	start := time.Now()
	_, _, err = benchrun.Workers(t.Set.Parallel, time.Hour, c.deployments, func(i int) error {
		return all.Create(ctx, benchrun.Deployment(ns, fmt.Sprintf("web-%03d", i), c.replicas))
	})
	if err != nil {
		return err
	}
	if err := c.wait(ctx, t.Set.Limit, states); err != nil {
		return err
	}
	t.R.Add(c.title()+", applied to Ready", "Pods/s", float64(c.pods())/time.Since(start).Seconds(), benchrun.Higher)
	if err := t.Cost(before, c.pods(), c.title()+", processor time a Pod"); err != nil {
		return err
	}
	if _, err := share(ctx, t, empty, c.pods(), c.title(), "Pod"); err != nil {
		return err
	}
	return measureIdle(ctx, t, c.title()+", idle")
}

// wait waits until all Pods are available. The limit is for the next of them.
func (c crowd) wait(ctx context.Context, limit time.Duration, states <-chan benchrun.Seen) error {
	available, sum, told := map[string]int{}, 0, 0
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for sum < c.pods() {
		select {
		case s := <-states:
			d, ok := s.Object.(*appsv1.Deployment)
			if !ok || int(d.Status.AvailableReplicas) == available[d.Name] {
				continue
			}
			sum += int(d.Status.AvailableReplicas) - available[d.Name]
			available[d.Name] = int(d.Status.AvailableReplicas)
			timer.Reset(limit)
			if sum >= told+10_000 {
				told = sum
				benchrun.Progress("%s: %d are ready", c.title(), sum)
			}
		case <-timer.C:
			return fmt.Errorf("%d of %d Pods were available, and no other within %s", sum, c.pods(), limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
