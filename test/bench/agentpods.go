package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"proa.dev/test/bench/ground"
)

// agentStep is one measurement of the node.
type agentStep struct {
	name string
	run  func(context.Context, *stage) error
}

// agentSteps measure an agent, the empty node first.
func agentSteps() []agentStep {
	return []agentStep{
		{"rest", func(ctx context.Context, st *stage) error { return st.rest(ctx, 0) }},
		{"one", func(ctx context.Context, st *stage) error { return st.deployments(ctx, 1, 7) }},
		{"ten", func(ctx context.Context, st *stage) error { return st.deployments(ctx, 10, 3) }},
		{"churn", func(ctx context.Context, st *stage) error { return st.churn(ctx, 30) }},
		{"kill", func(ctx context.Context, st *stage) error { return st.kills(ctx, 7) }},
		{"delete", func(ctx context.Context, st *stage) error { return st.deletes(ctx, 5) }},
		{"rest 30", func(ctx context.Context, st *stage) error { return st.rest(ctx, 30) }},
		{"rest 100", func(ctx context.Context, st *stage) error { return st.rest(ctx, 100) }},
	}
}

// realSpec is a Pod whose image is there. It has what a plain Pod has, a token of its ServiceAccount too, and ends when it
// is told to.
func realSpec() corev1.PodSpec {
	spec := podSpec("5m")
	spec.TerminationGracePeriodSeconds = nil
	delete(spec.Containers[0].Resources.Limits, corev1.ResourceCPU) // so little would hold up the runtime itself
	spec.Containers[0].Image = ground.Image
	spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	return spec
}

// pods is what watches show of the Pods and Deployments of a namespace.
type pods struct {
	events chan seen
	all    map[string]*corev1.Pod
	bound  map[string]time.Time // when they were first seen with a node
	ready  int                  // replicas that Deployments say are ready
}

// watchPods begins to watch.
func (st *stage) watchPods(ctx context.Context, ns string) (*pods, error) {
	p := &pods{events: make(chan seen, 1<<16), all: map[string]*corev1.Pod{}, bound: map[string]time.Time{}}
	for _, x := range []place{{door: st.core, namespace: ns, resource: "pods"}, {door: st.apps, namespace: ns, resource: "deployments"}} {
		if err := x.follow(ctx, func(s seen) { p.events <- s }); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// until takes in events until something is so, and returns when the last of them came.
func (p *pods) until(ctx context.Context, limit time.Duration, so func() bool) (time.Time, error) {
	timeout := time.After(limit)
	at := time.Now()
	for !so() {
		select {
		case s := <-p.events:
			p.apply(s)
			at = s.at
		case <-timeout:
			return at, fmt.Errorf("not within %s: %d Pods, %d ready, %d say Deployments", limit, len(p.all), p.count(isReady), p.ready)
		case <-ctx.Done():
			return at, ctx.Err()
		}
	}
	return at, nil
}

// apply takes in one event.
func (p *pods) apply(s seen) {
	switch x := s.object.(type) {
	case *appsv1.Deployment:
		p.ready = int(x.Status.ReadyReplicas)
	case *corev1.Pod:
		if s.kind == watch.Deleted {
			delete(p.all, x.Name)
			return
		}
		if _, known := p.bound[x.Name]; !known && x.Spec.NodeName != "" {
			p.bound[x.Name] = s.at
		}
		p.all[x.Name] = x
	}
}

func (p *pods) count(like func(*corev1.Pod) bool) (n int) {
	for _, x := range p.all {
		if like(x) {
			n++
		}
	}
	return n
}

func isReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// empty tells that no Pod is left.
func (p *pods) empty() bool { return len(p.all) == 0 }

// deployments measures Deployments of n Pods from the write to readiness, as the Deployment tells it.
func (st *stage) deployments(ctx context.Context, n, rounds int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ns, err := st.newNamespace(ctx, "deploy")
	if err != nil {
		return err
	}
	p, err := st.watchPods(ctx, ns)
	if err != nil {
		return err
	}
	all := place{door: st.apps, namespace: ns, resource: "deployments"}
	var low, whole, agent []time.Duration
	const warm = 1
	for i := range warm + rounds {
		clear(p.bound)
		alone, err := st.floor.Floor(ctx, n) // close to what is compared with it, since the machine may have other work
		if err != nil {
			return fmt.Errorf("the runtime alone: %w", err)
		}
		object := deployment(ns, fmt.Sprintf("web-%d", i), n)
		object.Spec.Template.Spec = realSpec()
		start := time.Now()
		if err := all.create(ctx, object); err != nil {
			return err
		}
		at, err := p.until(ctx, st.set.limit, func() bool { return p.count(isReady) == n })
		if err != nil {
			return err
		}
		first := slices.MinFunc(slices.Collect(maps.Values(p.bound)), time.Time.Compare)
		end, err := p.until(ctx, st.set.limit, func() bool { return p.ready == n })
		if err != nil {
			return err
		}
		if i >= warm {
			low, whole, agent = append(low, alone), append(whole, end.Sub(start)), append(agent, at.Sub(first))
		}
		if err := all.remove(ctx, object.Name, &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
			return err
		}
		if _, err := p.until(ctx, st.set.limit, p.empty); err != nil {
			return err
		}
		p.ready = 0
	}
	st.r.add(fmt.Sprintf("floor: the runtime alone, for %s, p50", podCount(n)), "ms", millis(low, 50), lower)
	name := fmt.Sprintf("Deployment of %s, applied to Ready", podCount(n))
	st.r.add(name+", p50", "ms", millis(whole, 50), lower)
	st.r.add(name+", over the floor", "ms", millis(whole, 50)-millis(low, 50), lower)
	if n == 1 {
		st.r.add("1 Pod, bound to Ready, p50", "ms", millis(agent, 50), lower)
	}
	return nil
}

// makePods creates Pods and waits until they are ready.
func (st *stage) makePods(ctx context.Context, p *pods, ns string, n int) (time.Duration, error) {
	start := time.Now()
	err := st.createPods(ctx, ns, n, st.set.parallel, func() *corev1.Pod { return &corev1.Pod{Spec: realSpec()} })
	if err != nil {
		return 0, err
	}
	at, err := p.until(ctx, st.set.limit, func() bool { return p.count(isReady) == n })
	return at.Sub(start), err
}

// crowd makes a namespace with Pods that are ready.
func (st *stage) crowd(ctx context.Context, prefix string, n int) (p *pods, ns string, took time.Duration, err error) {
	if ns, err = st.newNamespace(ctx, prefix); err != nil {
		return nil, "", 0, err
	}
	if p, err = st.watchPods(ctx, ns); err != nil {
		return nil, "", 0, err
	}
	took, err = st.makePods(ctx, p, ns, n)
	return p, ns, took, err
}

// churn measures how many Pods an agent starts, and starts and ends, in a minute.
func (st *stage) churn(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := cpu(st.agent)
	if err != nil {
		return err
	}
	p, ns, took, err := st.crowd(ctx, "churn", n)
	if err != nil {
		return err
	}
	after, err := cpu(st.agent)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := st.core.Delete().Namespace(ns).Resource("pods").Do(ctx).Error(); err != nil {
		return err
	}
	gone, err := p.until(ctx, st.set.limit, p.empty)
	if err != nil {
		return err
	}
	rate := func(d time.Duration) float64 { return float64(n) / d.Minutes() }
	st.r.add(fmt.Sprintf("%d Pods at once, started", n), "/min", rate(took), higher)
	st.r.add(fmt.Sprintf("%d Pods at once, started and ended", n), "/min", rate(took+gone.Sub(start)), higher)
	st.r.add("processor time of the agent for the start of a Pod", "ms", float64(after-before)/float64(time.Millisecond)/float64(n), lower)
	return nil
}

// kills measures how long a container is away whose process is killed.
func (st *stage) kills(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, _, _, err := st.crowd(ctx, "kill", n)
	if err != nil {
		return err
	}
	var samples []time.Duration
	for _, name := range slices.Sorted(maps.Keys(p.all)) {
		start := time.Now()
		if err := st.ground.Kill(ctx, string(p.all[name].UID), "pause"); err != nil {
			return err
		}
		at, err := p.until(ctx, st.set.limit, func() bool {
			x := p.all[name]
			return x != nil && isReady(x) && len(x.Status.ContainerStatuses) > 0 && x.Status.ContainerStatuses[0].RestartCount > 0 && x.Status.ContainerStatuses[0].State.Running != nil
		})
		if err != nil {
			return err
		}
		samples = append(samples, at.Sub(start))
	}
	st.r.add("SIGKILL of a container to Ready again, p50", "ms", millis(samples, 50), lower)
	return nil
}

// deletes measures how long Pods take to go: in peace, and by force.
func (st *stage) deletes(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, ns, _, err := st.crowd(ctx, "delete", 2*n)
	if err != nil {
		return err
	}
	all := place{door: st.core, namespace: ns, resource: "pods"}
	var peace, force []time.Duration
	for i, name := range slices.Sorted(maps.Keys(p.all)) {
		uid := string(p.all[name].UID)
		start := time.Now()
		if i < n {
			if err := all.remove(ctx, name, nil); err != nil {
				return err
			}
			at, err := p.until(ctx, st.set.limit, func() bool { return p.all[name] == nil })
			if err != nil {
				return err
			}
			peace = append(peace, at.Sub(start))
			continue
		}
		if err := all.remove(ctx, name, &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			return err
		}
		if err := until(ctx, st.set.limit, func() (bool, error) {
			runs, err := st.ground.Runs(ctx, uid)
			return !runs, err
		}); err != nil {
			return err
		}
		force = append(force, time.Since(start))
	}
	st.r.add("delete of a Pod that ends when told to, until it is gone, p50", "ms", millis(peace, 50), lower)
	st.r.add("delete with grace period 0, until nothing runs, p50", "ms", millis(force, 50), lower)
	return nil
}

// rest measures what n Pods that do nothing cost.
func (st *stage) rest(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if n > 0 {
		if _, _, _, err := st.crowd(ctx, "rest", n); err != nil {
			return err
		}
	}
	const settle, window = 6 * time.Second, 12 * time.Second
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	groups := []struct {
		name string
		pids []int
	}{{"agent", st.agent}, {"whole cluster", st.pids}}
	before := make([]time.Duration, len(groups))
	var err error
	for i, g := range groups {
		if before[i], err = cpu(g.pids); err != nil {
			return err
		}
	}
	if err := sleep(ctx, window); err != nil {
		return err
	}
	for i, g := range groups {
		after, err := cpu(g.pids)
		if err != nil {
			return err
		}
		u, err := read(g.pids)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d Pods at rest, %s, ", n, g.name)
		st.r.add(name+"CPU", "% of a core", 100*float64(after-before[i])/float64(window), lower)
		st.r.add(name+"memory (RSS)", "MiB", float64(u.rss)/(1<<20), lower)
		st.r.add(name+"memory (PSS)", "MiB", float64(u.pss)/(1<<20), lower)
	}
	return nil
}
