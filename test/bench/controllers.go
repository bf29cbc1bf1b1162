package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
)

// controllerSteps returns the measurements of controllers.
func controllerSteps(set benchrun.Settings) []benchrun.Step {
	return []benchrun.Step{
		{Name: "idle", Run: idleWhole},
		{Name: "wake", Run: wakes},
		{Name: "wake slices", Run: wakeSlices},
		{Name: "namespace", Run: deleteNamespace},
		{Name: "rollout", Run: rollout},
		{Name: "idle nodes", Run: idleNodes},
		{Name: "idle simulated nodes", Args: []string{"--simulate", fmt.Sprint(set.Nodes)}, Run: idleSimulated},
		newCrowd(set).step(),
	}
}

// idleWhole measures a whole control plane that has nothing to do.
func idleWhole(ctx context.Context, t *benchrun.Trial) error {
	return measureIdle(ctx, t, "whole control plane, idle")
}

// idleNodes measures it while nodes renew their Leases from outside.
func idleNodes(ctx context.Context, t *benchrun.Trial) error {
	if err := t.Nodes(ctx, benchrun.Fleet{N: t.Set.Nodes, Zones: 3}, t.Set.Parallel); err != nil {
		return err
	}
	return measureIdle(ctx, t, fmt.Sprintf("%d nodes, idle", t.Set.Nodes))
}

// idleSimulated measures it while it simulates the nodes itself.
func idleSimulated(ctx context.Context, t *benchrun.Trial) error {
	if err := t.WaitNodes(ctx, t.Set.Nodes, benchrun.NotReadyReason); err != nil {
		return err
	}
	return measureIdle(ctx, t, fmt.Sprintf("%d simulated nodes, idle", t.Set.Nodes))
}

// measureIdle lets the system settle, then measures memory and processor time at idle.
func measureIdle(ctx context.Context, t *benchrun.Trial, when string) error {
	if len(t.Pids) == 0 {
		return nil
	}
	if err := wait.Sleep(ctx, t.Set.Settle); err != nil {
		return err
	}
	before, err := benchrun.ProcessorTime(t.Pids)
	if err != nil {
		return err
	}
	if err := wait.Sleep(ctx, t.Set.Idle); err != nil {
		return err
	}
	after, err := benchrun.ProcessorTime(t.Pids)
	if err != nil {
		return err
	}
	t.R.Add(when+", CPU", "% of a core", 100*float64(after-before)/float64(t.Set.Idle), benchrun.Lower)
	u, err := benchrun.ReadUsage(t.Pids)
	if err != nil {
		return err
	}
	t.R.Add(when+", memory (anonymous)", "MiB", float64(u.Anon)/(1<<20), benchrun.Lower)
	t.R.Add(when+", memory (RSS)", "MiB", float64(u.RSS)/(1<<20), benchrun.Lower)
	return nil
}

// deleteNamespace measures how long the deletion of a full namespace takes.
func deleteNamespace(ctx context.Context, t *benchrun.Trial) error {
	ns, err := t.NewNamespace(ctx, "full")
	if err != nil {
		return err
	}
	maps := benchrun.ResourceClient{Door: t.Core, Namespace: ns, Resource: "configmaps"}
	_, _, err = benchrun.Workers(t.Set.Parallel, time.Hour, t.Set.Objects, func(i int) error {
		return maps.Create(ctx, benchrun.ConfigMap(ns, fmt.Sprintf("cm-%06d", i)))
	})
	if err != nil {
		return err
	}
	spaces := benchrun.ResourceClient{Door: t.Core, Resource: "namespaces", Fields: "metadata.name=" + ns}
	gone := make(chan time.Time, 1)
	err = spaces.Follow(ctx, func(s benchrun.Seen) {
		if s.Kind == watch.Deleted {
			gone <- s.At
		}
	})
	if err != nil {
		return err
	}
	start := time.Now()
	if err := spaces.Remove(ctx, ns, nil); err != nil {
		return err
	}
	select {
	case at := <-gone:
		t.R.Add(fmt.Sprintf("delete of a namespace with %d ConfigMaps", t.Set.Objects), "s", at.Sub(start).Seconds(), benchrun.Lower)
		return nil
	case <-time.After(t.Set.Limit):
		return fmt.Errorf("the namespace was not gone within %s", t.Set.Limit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// rollout measures a Deployment from its creation until all its Pods are deleted, on nodes whose kubelets this tool
// plays.
func rollout(ctx context.Context, t *benchrun.Trial) error {
	const nodes = 100
	if err := t.Nodes(ctx, benchrun.Fleet{N: nodes, Zones: 3}, t.Set.Parallel); err != nil {
		return err
	}
	ns, err := t.NewNamespace(ctx, "rollout")
	if err != nil {
		return err
	}
	if err := t.Kubelets(ctx, ns, t.Set.Parallel); err != nil {
		return err
	}
	states := make(chan rolloutState, 1<<16)
	if err := watchRollout(ctx, t.Cluster, ns, states); err != nil {
		return err
	}
	all := benchrun.ResourceClient{Door: t.Apps, Namespace: ns, Resource: "deployments"}
	n := t.Set.Replicas
	name := func(what string) string { return fmt.Sprintf("Deployment of %d Pods on %d nodes, %s", n, nodes, what) }
	var now rolloutState
	measure := func(start time.Time, what string, done func(rolloutState) bool) error {
		at, err := now.wait(ctx, states, t.Set.Limit, done)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		t.R.Add(name(what), "s", max(at.Sub(start), 0).Seconds(), benchrun.Lower)
		return nil
	}

	object := benchrun.Deployment(ns, "web", n)
	before, err := t.CPU()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := all.Create(ctx, object); err != nil {
		return err
	}
	if err := measure(start, "to the last created", func(s rolloutState) bool { return s.pods >= n }); err != nil {
		return err
	}
	if err := measure(start, "to the last bound", func(s rolloutState) bool { return s.bound >= n }); err != nil {
		return err
	}
	if err := measure(start, "to all available", func(s rolloutState) bool { return int(s.status.AvailableReplicas) >= n }); err != nil {
		return err
	}
	if err := t.Cost(before, n, name("processor time a Pod")); err != nil {
		return err
	}

	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"round":"2"}}}}}`)
	start = time.Now()
	if err := all.Patch(ctx, "web", patch, object); err != nil {
		return err
	}
	if err := measure(start, "rolling update", func(s rolloutState) bool {
		return s.status.ObservedGeneration >= object.Generation && int(s.status.UpdatedReplicas) == n &&
			int(s.status.AvailableReplicas) == n && int(s.status.Replicas) == n
	}); err != nil {
		return err
	}

	start = time.Now()
	if err := all.Remove(ctx, "web", &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		return err
	}
	return measure(start, "delete until the last Pod is gone", func(s rolloutState) bool { return s.pods == 0 })
}

// rolloutState is the state of one Deployment that watches show.
type rolloutState struct {
	pods, bound int
	status      appsv1.DeploymentStatus
	at          time.Time
}

// watchRollout sends the state after every event in the namespace.
func watchRollout(ctx context.Context, c *benchrun.Cluster, ns string, states chan<- rolloutState) error {
	events := make(chan benchrun.Seen, 1<<16)
	for _, p := range []benchrun.ResourceClient{{Door: c.Core, Namespace: ns, Resource: "pods"},
		{Door: c.Apps, Namespace: ns, Resource: "deployments"}} {
		if err := p.Follow(ctx, func(s benchrun.Seen) { events <- s }); err != nil {
			return err
		}
	}
	go func() {
		var now rolloutState
		pods := map[string]bool{} // bound or not
		for {
			select {
			case <-ctx.Done():
				return
			case s := <-events:
				now.apply(s, pods)
				select {
				case states <- now:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	return nil
}

// apply updates the state by one event.
func (s *rolloutState) apply(event benchrun.Seen, pods map[string]bool) {
	s.at = event.At
	switch x := event.Object.(type) {
	case *appsv1.Deployment:
		s.status = x.Status
	case *corev1.Pod:
		was, known := pods[x.Name]
		if event.Kind == watch.Deleted {
			delete(pods, x.Name)
		} else {
			pods[x.Name] = x.Spec.NodeName != ""
		}
		is := pods[x.Name]
		s.pods = len(pods)
		if known && was && !is {
			s.bound--
		}
		if !was && is {
			s.bound++
		}
	}
}

// wait reads states until one is as wanted, and returns when it was seen.
func (s *rolloutState) wait(ctx context.Context, states <-chan rolloutState, limit time.Duration, done func(rolloutState) bool) (time.Time,
	error) {
	timeout := time.After(limit)
	for !done(*s) {
		select {
		case *s = <-states:
		case <-timeout:
			return time.Time{}, fmt.Errorf("not within %s: %d Pods, %d bound, %d updated, %d available", limit, s.pods, s.bound,
				s.status.UpdatedReplicas, s.status.AvailableReplicas)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	return s.at, nil
}
