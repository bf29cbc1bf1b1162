package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
)

// crowd is a large cluster of simulated nodes, full of Pods that run.
type crowd struct {
	nodes, deployments, replicas int
}

// theCrowd is as large as the factor says; it has as many Pods as 5,000 nodes
// of today run.
func theCrowd(set settings) crowd {
	return crowd{nodes: set.scaled(5000), deployments: set.scaled(100), replicas: 1000}
}

func (c crowd) pods() int { return c.deployments * c.replicas }

func (c crowd) title() string {
	return fmt.Sprintf("%d simulated nodes and %d Pods", c.nodes, c.pods())
}

// step is the measurement; upstream cannot simulate nodes.
func (c crowd) step() step {
	return step{name: "100000 Pods", args: []string{"--simulate", fmt.Sprint(c.nodes)}, ours: true, run: c.run}
}

// run fills the cluster by Deployments, all at once, and measures what that
// took, and what the cluster costs at rest.
func (c crowd) run(ctx context.Context, t *trial) error {
	if err := t.waitNodes(ctx, c.nodes, ready); err != nil {
		return err
	}
	if err := sleep(ctx, t.set.settle); err != nil {
		return err
	}
	empty, err := read(t.pids)
	if err != nil {
		return err
	}
	ns, err := t.newNamespace(ctx, "crowd")
	if err != nil {
		return err
	}
	all := place{door: t.apps, namespace: ns, resource: "deployments"}
	states := make(chan seen, 1<<16)
	if err := all.follow(ctx, func(s seen) { states <- s }); err != nil {
		return err
	}
	before, err := t.cpu()
	if err != nil {
		return err
	}
	start := time.Now()
	_, _, err = workers(t.set.parallel, time.Hour, c.deployments, func(i int) error {
		return all.create(ctx, deployment(ns, fmt.Sprintf("web-%03d", i), c.replicas))
	})
	if err != nil {
		return err
	}
	if err := c.wait(ctx, t.set.limit, states); err != nil {
		return err
	}
	t.r.add(c.title()+", applied to Ready", "Pods/s", float64(c.pods())/time.Since(start).Seconds(), higher)
	if err := t.cost(before, c.pods(), c.title()+", processor time a Pod"); err != nil {
		return err
	}
	if _, err := t.share(ctx, empty, c.pods(), c.title(), "Pod"); err != nil {
		return err
	}
	return atRest(ctx, t, c.title()+", at rest")
}

// wait waits until all Pods are available. The limit is for the next of them.
func (c crowd) wait(ctx context.Context, limit time.Duration, states <-chan seen) error {
	available, sum, told := map[string]int{}, 0, 0
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for sum < c.pods() {
		select {
		case s := <-states:
			d, ok := s.object.(*appsv1.Deployment)
			if !ok || int(d.Status.AvailableReplicas) == available[d.Name] {
				continue
			}
			sum += int(d.Status.AvailableReplicas) - available[d.Name]
			available[d.Name] = int(d.Status.AvailableReplicas)
			timer.Reset(limit)
			if sum >= told+10_000 {
				told = sum
				progress("%s: %d are ready", c.title(), sum)
			}
		case <-timer.C:
			return fmt.Errorf("%d of %d Pods were available, and no other within %s", sum, c.pods(), limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
