package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// loopSteps measure the controllers.
func loopSteps(set settings) []step {
	return []step{
		{name: "idle", run: idleWhole},
		{name: "wake", run: wakes},
		{name: "wake slices", run: wakeSlices},
		{name: "namespace", run: deleteNamespace},
		{name: "rollout", run: rollout},
		{name: "idle nodes", run: idleNodes},
		{name: "idle simulated nodes", args: []string{"--simulate", fmt.Sprint(set.nodes)}, run: idleSimulated},
		theCrowd(set).step(),
	}
}

// idleWhole is the price of a whole control plane that has nothing to do.
func idleWhole(ctx context.Context, t *trial) error {
	return atRest(ctx, t, "whole control plane, idle")
}

// idleNodes is its price when nodes renew their Leases from outside.
func idleNodes(ctx context.Context, t *trial) error {
	if err := t.nodes(ctx, fleet{n: t.set.nodes, zones: 3}, t.set.parallel); err != nil {
		return err
	}
	return atRest(ctx, t, fmt.Sprintf("%d nodes, idle", t.set.nodes))
}

// idleSimulated is its price when it plays the nodes itself.
func idleSimulated(ctx context.Context, t *trial) error {
	if err := t.waitNodes(ctx, t.set.nodes, ready); err != nil {
		return err
	}
	return atRest(ctx, t, fmt.Sprintf("%d simulated nodes, idle", t.set.nodes))
}

// atRest lets the system settle, then measures memory and processor time.
func atRest(ctx context.Context, t *trial, when string) error {
	if len(t.pids) == 0 {
		return nil
	}
	if err := sleep(ctx, t.set.settle); err != nil {
		return err
	}
	before, err := cpu(t.pids)
	if err != nil {
		return err
	}
	if err := sleep(ctx, t.set.idle); err != nil {
		return err
	}
	after, err := cpu(t.pids)
	if err != nil {
		return err
	}
	t.r.add(when+", CPU", "% of a core", 100*float64(after-before)/float64(t.set.idle), lower)
	u, err := read(t.pids)
	if err != nil {
		return err
	}
	t.r.add(when+", memory (RSS)", "MiB", float64(u.rss)/(1<<20), lower)
	t.r.add(when+", memory (anonymous)", "MiB", float64(u.anon)/(1<<20), lower)
	return nil
}

// deleteNamespace measures how long a full namespace takes to go.
func deleteNamespace(ctx context.Context, t *trial) error {
	ns, err := t.newNamespace(ctx, "full")
	if err != nil {
		return err
	}
	maps := place{door: t.core, namespace: ns, resource: "configmaps"}
	_, _, err = workers(t.set.parallel, time.Hour, t.set.objects, func(i int) error {
		return maps.create(ctx, configMap(ns, fmt.Sprintf("cm-%06d", i)))
	})
	if err != nil {
		return err
	}
	spaces := place{door: t.core, resource: "namespaces", fields: "metadata.name=" + ns}
	gone := make(chan time.Time, 1)
	err = spaces.follow(ctx, func(s seen) {
		if s.kind == watch.Deleted {
			gone <- s.at
		}
	})
	if err != nil {
		return err
	}
	start := time.Now()
	if err := spaces.remove(ctx, ns, nil); err != nil {
		return err
	}
	select {
	case at := <-gone:
		t.r.add(fmt.Sprintf("delete of a namespace with %d ConfigMaps", t.set.objects), "s", at.Sub(start).Seconds(), lower)
		return nil
	case <-time.After(t.set.limit):
		return fmt.Errorf("the namespace was not gone within %s", t.set.limit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

func deployment(namespace, name string, replicas int) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(replicas)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("10m")},
		},
	}
}

// rollout measures a Deployment from its creation to the end of its Pods, on
// nodes whose kubelets this tool plays.
func rollout(ctx context.Context, t *trial) error {
	const nodes = 100
	if err := t.nodes(ctx, fleet{n: nodes, zones: 3}, t.set.parallel); err != nil {
		return err
	}
	ns, err := t.newNamespace(ctx, "rollout")
	if err != nil {
		return err
	}
	if err := t.kubelets(ctx, ns, t.set.parallel); err != nil {
		return err
	}
	states := make(chan rolloutState, 1<<16)
	if err := watchRollout(ctx, t.cluster, ns, states); err != nil {
		return err
	}
	all := place{door: t.apps, namespace: ns, resource: "deployments"}
	n := t.set.replicas
	name := func(what string) string { return fmt.Sprintf("Deployment of %d Pods on %d nodes, %s", n, nodes, what) }
	var now rolloutState
	wait := func(start time.Time, what string, done func(rolloutState) bool) error {
		at, err := now.wait(ctx, states, t.set.limit, done)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		t.r.add(name(what), "s", max(at.Sub(start), 0).Seconds(), lower)
		return nil
	}

	object := deployment(ns, "web", n)
	before, err := t.cpu()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := all.create(ctx, object); err != nil {
		return err
	}
	if err := wait(start, "to the last created", func(s rolloutState) bool { return s.pods >= n }); err != nil {
		return err
	}
	if err := wait(start, "to the last bound", func(s rolloutState) bool { return s.bound >= n }); err != nil {
		return err
	}
	if err := wait(start, "to all available", func(s rolloutState) bool { return int(s.status.AvailableReplicas) >= n }); err != nil {
		return err
	}
	if err := t.cost(before, n, name("processor time a Pod")); err != nil {
		return err
	}

	patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"round":"2"}}}}}`)
	start = time.Now()
	if err := all.patch(ctx, "web", patch, object); err != nil {
		return err
	}
	if err := wait(start, "rolling update", func(s rolloutState) bool {
		return s.status.ObservedGeneration >= object.Generation && int(s.status.UpdatedReplicas) == n &&
			int(s.status.AvailableReplicas) == n && int(s.status.Replicas) == n
	}); err != nil {
		return err
	}

	start = time.Now()
	if err := all.remove(ctx, "web", &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		return err
	}
	return wait(start, "delete until the last Pod is gone", func(s rolloutState) bool { return s.pods == 0 })
}

// rolloutState is what watches show of one Deployment.
type rolloutState struct {
	pods, bound int
	status      appsv1.DeploymentStatus
	at          time.Time
}

// watchRollout sends the state after every event in the namespace.
func watchRollout(ctx context.Context, c *cluster, ns string, states chan<- rolloutState) error {
	events := make(chan seen, 1<<16)
	for _, p := range []place{{door: c.core, namespace: ns, resource: "pods"}, {door: c.apps, namespace: ns, resource: "deployments"}} {
		if err := p.follow(ctx, func(s seen) { events <- s }); err != nil {
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

// apply counts one event in.
func (s *rolloutState) apply(event seen, pods map[string]bool) {
	s.at = event.at
	switch x := event.object.(type) {
	case *appsv1.Deployment:
		s.status = x.Status
	case *corev1.Pod:
		was, known := pods[x.Name]
		if event.kind == watch.Deleted {
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
func (s *rolloutState) wait(ctx context.Context, states <-chan rolloutState, limit time.Duration, done func(rolloutState) bool) (time.Time, error) {
	timeout := time.After(limit)
	for !done(*s) {
		select {
		case *s = <-states:
		case <-timeout:
			return time.Time{}, fmt.Errorf("not within %s: %d Pods, %d bound, %d updated, %d available", limit, s.pods, s.bound, s.status.UpdatedReplicas, s.status.AvailableReplicas)
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
	return s.at, nil
}
