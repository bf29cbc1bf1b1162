package nodebench

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

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
	"proa.dev/test/bench/ground"
)

// agentStep is one measurement of the node.
type agentStep struct {
	Name string
	run  func(context.Context, *nodeTrial) error
}

// AgentSteps returns the measurements of an agent, the empty node first.
func AgentSteps() []agentStep {
	return []agentStep{
		{"rest", func(ctx context.Context, st *nodeTrial) error { return st.rest(ctx, 0) }},
		{"one", func(ctx context.Context, st *nodeTrial) error { return st.deployments(ctx, 1, 7) }},
		{"ten", func(ctx context.Context, st *nodeTrial) error { return st.deployments(ctx, 10, 3) }},
		{"churn", func(ctx context.Context, st *nodeTrial) error { return st.churn(ctx, 30) }},
		{"kill", func(ctx context.Context, st *nodeTrial) error { return st.kills(ctx, 7) }},
		{"delete", func(ctx context.Context, st *nodeTrial) error { return st.deletes(ctx, 5) }},
		{"rest 30", func(ctx context.Context, st *nodeTrial) error { return st.rest(ctx, 30) }},
		{"rest 100", func(ctx context.Context, st *nodeTrial) error { return st.rest(ctx, 100) }},
	}
}

// realSpec returns a Pod whose image is on the node. It has what a usual Pod has, including a token of its
// ServiceAccount, and ends when it gets SIGTERM.
func realSpec() corev1.PodSpec {
	spec := benchrun.PodSpec("5m")
	spec.TerminationGracePeriodSeconds = nil
	delete(spec.Containers[0].Resources.Limits, corev1.ResourceCPU) // so little would hold up the runtime itself
	spec.Containers[0].Image = ground.Image
	spec.Containers[0].ImagePullPolicy = corev1.PullIfNotPresent
	return spec
}

// pods has what watches show of the Pods and Deployments of a namespace.
type pods struct {
	events chan benchrun.Seen
	all    map[string]*corev1.Pod
	bound  map[string]time.Time // when they were first seen with a node
	ready  int                  // replicas that Deployments say are ready
}

// watchPods begins to watch.
func (st *nodeTrial) watchPods(ctx context.Context, ns string) (*pods, error) {
	p := &pods{events: make(chan benchrun.Seen, 1<<16), all: map[string]*corev1.Pod{}, bound: map[string]time.Time{}}
	for _, x := range []benchrun.ResourceClient{{Door: st.Core, Namespace: ns, Resource: "pods"},
		{Door: st.Apps, Namespace: ns, Resource: "deployments"}} {
		if err := x.Follow(ctx, func(s benchrun.Seen) { p.events <- s }); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// until reads events until a condition holds, and returns the time of the last one.
func (p *pods) until(ctx context.Context, limit time.Duration, so func() bool) (time.Time, error) {
	timeout := time.After(limit)
	at := time.Now()
	for !so() {
		select {
		case s := <-p.events:
			p.apply(s)
			at = s.At
		case <-timeout:
			return at, fmt.Errorf("not within %s: %d Pods, %d ready, %d say Deployments", limit, len(p.all), p.count(isReady), p.ready)
		case <-ctx.Done():
			return at, ctx.Err()
		}
	}
	return at, nil
}

// apply updates the state by one event.
func (p *pods) apply(s benchrun.Seen) {
	switch x := s.Object.(type) {
	case *appsv1.Deployment:
		p.ready = int(x.Status.ReadyReplicas)
	case *corev1.Pod:
		if s.Kind == watch.Deleted {
			delete(p.all, x.Name)
			return
		}
		if _, known := p.bound[x.Name]; !known && x.Spec.NodeName != "" {
			p.bound[x.Name] = s.At
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

// deployments measures Deployments of n Pods from the write until the Deployment reports them ready.
func (st *nodeTrial) deployments(ctx context.Context, n, rounds int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ns, err := st.NewNamespace(ctx, "deploy")
	if err != nil {
		return err
	}
	p, err := st.watchPods(ctx, ns)
	if err != nil {
		return err
	}
	all := benchrun.ResourceClient{Door: st.Apps, Namespace: ns, Resource: "deployments"}
	var low, whole, agent []time.Duration
	const warm = 1
	for i := range warm + rounds {
		clear(p.bound)
		alone, err := st.floor.Floor(ctx, n) // close to what is compared with it, since the machine may have other work
		if err != nil {
			return fmt.Errorf("the runtime alone: %w", err)
		}
		object := benchrun.Deployment(ns, fmt.Sprintf("web-%d", i), n)
		object.Spec.Template.Spec = realSpec()
		start := time.Now()
		if err := all.Create(ctx, object); err != nil {
			return err
		}
		at, err := p.until(ctx, st.Set.Limit, func() bool { return p.count(isReady) == n })
		if err != nil {
			return err
		}
		first := slices.MinFunc(slices.Collect(maps.Values(p.bound)), time.Time.Compare)
		end, err := p.until(ctx, st.Set.Limit, func() bool { return p.ready == n })
		if err != nil {
			return err
		}
		if i >= warm {
			low, whole, agent = append(low, alone), append(whole, end.Sub(start)), append(agent, at.Sub(first))
		}
		if err := all.Remove(ctx, object.Name,
			&metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
			return err
		}
		if _, err := p.until(ctx, st.Set.Limit, p.empty); err != nil {
			return err
		}
		p.ready = 0
	}
	st.R.Add(fmt.Sprintf("floor: the runtime alone, for %s, p50", podCount(n)), "ms", benchrun.Millis(low, 50), benchrun.Lower)
	name := fmt.Sprintf("Deployment of %s, applied to Ready", podCount(n))
	st.R.Add(name+", p50", "ms", benchrun.Millis(whole, 50), benchrun.Lower)
	st.R.Add(name+", over the floor", "ms", benchrun.Millis(whole, 50)-benchrun.Millis(low, 50), benchrun.Lower)
	if n == 1 {
		st.R.Add("1 Pod, bound to Ready, p50", "ms", benchrun.Millis(agent, 50), benchrun.Lower)
	}
	return nil
}

// makePods creates Pods and waits until they are ready.
func (st *nodeTrial) makePods(ctx context.Context, p *pods, ns string, n int) (time.Duration, error) {
	start := time.Now()
	err := st.CreatePods(ctx, ns, n, st.Set.Parallel, func() *corev1.Pod { return &corev1.Pod{Spec: realSpec()} })
	if err != nil {
		return 0, err
	}
	at, err := p.until(ctx, st.Set.Limit, func() bool { return p.count(isReady) == n })
	return at.Sub(start), err
}

// crowd creates a namespace with Pods that are ready.
func (st *nodeTrial) crowd(ctx context.Context, prefix string, n int) (p *pods, ns string, took time.Duration, err error) {
	if ns, err = st.NewNamespace(ctx, prefix); err != nil {
		return nil, "", 0, err
	}
	if p, err = st.watchPods(ctx, ns); err != nil {
		return nil, "", 0, err
	}
	took, err = st.makePods(ctx, p, ns, n)
	return p, ns, took, err
}

// churn measures how many Pods an agent starts, and starts and ends, in a minute.
func (st *nodeTrial) churn(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := benchrun.ProcessorTime(st.agent)
	if err != nil {
		return err
	}
	p, ns, took, err := st.crowd(ctx, "churn", n)
	if err != nil {
		return err
	}
	after, err := benchrun.ProcessorTime(st.agent)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := st.Core.Delete().Namespace(ns).Resource("pods").Do(ctx).Error(); err != nil {
		return err
	}
	gone, err := p.until(ctx, st.Set.Limit, p.empty)
	if err != nil {
		return err
	}
	rate := func(d time.Duration) float64 { return float64(n) / d.Minutes() }
	st.R.Add(fmt.Sprintf("%d Pods at once, started", n), "/min", rate(took), benchrun.Higher)
	st.R.Add(fmt.Sprintf("%d Pods at once, started and ended", n), "/min", rate(took+gone.Sub(start)), benchrun.Higher)
	st.R.Add("processor time of the agent for the start of a Pod", "ms", float64(after-before)/float64(time.Millisecond)/float64(n),
		benchrun.Lower)
	return nil
}

// kills measures how long a container is down after its process was killed.
func (st *nodeTrial) kills(ctx context.Context, n int) error {
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
		at, err := p.until(ctx, st.Set.Limit, func() bool {
			x := p.all[name]
			return x != nil && isReady(x) && len(x.Status.ContainerStatuses) > 0 && x.Status.ContainerStatuses[0].RestartCount > 0 &&
				x.Status.ContainerStatuses[0].State.Running != nil
		})
		if err != nil {
			return err
		}
		samples = append(samples, at.Sub(start))
	}
	st.R.Add("SIGKILL of a container to Ready again, p50", "ms", benchrun.Millis(samples, 50), benchrun.Lower)
	return nil
}

// deletes measures how long the deletion of Pods takes, gracefully and by force.
func (st *nodeTrial) deletes(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p, ns, _, err := st.crowd(ctx, "delete", 2*n)
	if err != nil {
		return err
	}
	all := benchrun.ResourceClient{Door: st.Core, Namespace: ns, Resource: "pods"}
	var peace, force []time.Duration
	for i, name := range slices.Sorted(maps.Keys(p.all)) {
		uid := string(p.all[name].UID)
		start := time.Now()
		if i < n {
			if err := all.Remove(ctx, name, nil); err != nil {
				return err
			}
			at, err := p.until(ctx, st.Set.Limit, func() bool { return p.all[name] == nil })
			if err != nil {
				return err
			}
			peace = append(peace, at.Sub(start))
			continue
		}
		if err := all.Remove(ctx, name, &metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}); err != nil {
			return err
		}
		if err := benchrun.WaitUntil(ctx, st.Set.Limit, func() (bool, error) {
			runs, err := st.ground.Runs(ctx, uid)
			return !runs, err
		}); err != nil {
			return err
		}
		force = append(force, time.Since(start))
	}
	st.R.Add("delete of a Pod that ends when told to, until it is gone, p50", "ms", benchrun.Millis(peace, 50), benchrun.Lower)
	st.R.Add("delete with grace period 0, until nothing runs, p50", "ms", benchrun.Millis(force, 50), benchrun.Lower)
	return nil
}

// rest measures what n idle Pods cost.
func (st *nodeTrial) rest(ctx context.Context, n int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if n > 0 {
		if _, _, _, err := st.crowd(ctx, "rest", n); err != nil {
			return err
		}
	}
	const settle, window = 6 * time.Second, 12 * time.Second
	if err := wait.Sleep(ctx, settle); err != nil {
		return err
	}
	groups := []struct {
		name string
		pids []int
	}{{"agent", st.agent}, {"whole cluster", st.Pids}}
	before := make([]time.Duration, len(groups))
	var err error
	for i, g := range groups {
		if before[i], err = benchrun.ProcessorTime(g.pids); err != nil {
			return err
		}
	}
	if err := wait.Sleep(ctx, window); err != nil {
		return err
	}
	for i, g := range groups {
		after, err := benchrun.ProcessorTime(g.pids)
		if err != nil {
			return err
		}
		u, err := benchrun.ReadUsage(g.pids)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%d idle Pods, %s, ", n, g.name)
		st.R.Add(name+"CPU", "% of a core", 100*float64(after-before[i])/float64(window), benchrun.Lower)
		st.R.Add(name+"memory (anonymous)", "MiB", float64(u.Anon)/(1<<20), benchrun.Lower)
		st.R.Add(name+"memory (RSS)", "MiB", float64(u.RSS)/(1<<20), benchrun.Lower)
		st.R.Add(name+"memory (PSS)", "MiB", float64(u.PSS)/(1<<20), benchrun.Lower)
	}
	return nil
}
