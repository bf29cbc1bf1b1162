package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/internal/wait"
	"proa.dev/test/bench/benchrun"
)

// workload is a number of Pods to schedule on a number of nodes that hold some
// Pods already. Its Pods are in one namespace, those that were there before in
// another.
type workload struct {
	name             string
	nodes, zones     int
	before, pods     int
	formBefore, form func(spaces []string) *corev1.Pod
	shape            bool // the shape of one in scheduler_perf
	classes          bool // needs the PriorityClass
	sequential       bool // one Pod after the other
	waiting          bool // all Pods are there before a node takes any
	large            bool // also measures memory; not for upstream
}

// workloads returns the workloads: some of our own, and some with the shapes of upstream's scheduler_perf. Large
// numbers are reduced so that each takes at most two minutes.
func workloads() []workload {
	plain := func([]string) *corev1.Pod { return benchrun.PlainPod() }
	like := func(cpu string) func([]string) *corev1.Pod {
		return func([]string) *corev1.Pod { return &corev1.Pod{Spec: benchrun.PodSpec(cpu)} }
	}
	return []workload{
		{name: "100 nodes", nodes: 100, zones: 3, before: 100, pods: 3000, formBefore: plain, form: plain},
		{name: "100 nodes, Pods that wait", nodes: 100, zones: 3, pods: 3000, form: plain, waiting: true},
		{name: "1000 nodes", nodes: 1000, zones: 3, before: 100, pods: 5000, formBefore: plain, form: plain},
		{name: "1000 nodes, Pods that wait", nodes: 1000, zones: 3, pods: 3000, form: plain, waiting: true},
		{name: "one by one", nodes: 1000, zones: 3, before: 100, pods: 500, formBefore: plain, form: plain, sequential: true},
		{name: "SchedulingBasic", shape: true, nodes: 5000, zones: 3, before: 1000, pods: 3000, formBefore: like("100m"),
			form: like("100m")},
		{name: "SchedulingPodAntiAffinity", shape: true, nodes: 5000, zones: 3, before: 1000, pods: 1000, formBefore: antiAffine,
			form: antiAffine},
		{name: "SchedulingPodAffinity", shape: true, nodes: 5000, zones: 1, before: 3000, pods: 1000, formBefore: affine, form: affine},
		{name: "TopologySpreading", shape: true, nodes: 5000, zones: 3, before: 3000, pods: 2000, formBefore: like("100m"),
			form: spread(corev1.DoNotSchedule)},
		{name: "PreferredTopologySpreading", shape: true, nodes: 5000, zones: 3, before: 3000, pods: 2000, formBefore: like("100m"),
			form: spread(corev1.ScheduleAnyway)},
		{name: "PreemptionBasic", shape: true, nodes: 500, zones: 3, before: 2000, pods: 500, formBefore: like("900m"), form: important,
			classes: true},
		{name: "30000 Pods", nodes: 5000, zones: 3, before: 1000, pods: 29000, formBefore: plain, form: plain, large: true},
	}
}

func scheduleSteps(set benchrun.Settings) []benchrun.Step {
	var out []benchrun.Step
	for _, w := range workloads() {
		w.nodes, w.pods = set.Scaled(w.nodes), set.Scaled(w.pods)
		if w.before > 0 {
			w.before = set.Scaled(w.before)
		}
		out = append(out, benchrun.Step{Name: w.name, Ours: w.large, Run: w.run})
	}
	return out
}

// title begins the rows of a workload.
func (w workload) title() string {
	switch {
	case w.shape:
		return fmt.Sprintf("%s, %d nodes, %d Pods after %d", w.name, w.nodes, w.pods, w.before)
	case w.waiting:
		return fmt.Sprintf("%d nodes, %d Pods that wait", w.nodes, w.pods)
	default:
		return fmt.Sprintf("%d nodes, %d Pods", w.nodes, w.pods)
	}
}

func (w workload) run(ctx context.Context, t *benchrun.Trial) error {
	empty, err := benchrun.ReadUsage(t.Pids)
	if err != nil {
		return err
	}
	if err := t.Nodes(ctx, benchrun.Fleet{N: w.nodes, Zones: w.zones, Held: w.waiting}, t.Set.Parallel); err != nil {
		return err
	}
	if w.classes {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "bench-important", Labels: benchrun.OwnLabels()},
			Value: 1000}
		if err := (benchrun.ResourceClient{Door: t.Scheduling, Resource: "priorityclasses"}).Create(ctx, class); err != nil {
			return err
		}
	}
	var spaces []string
	for range 2 {
		ns, err := t.NewNamespace(ctx, "schedule")
		if err != nil {
			return err
		}
		spaces = append(spaces, ns)
	}
	if w.large {
		if empty, err = share(ctx, t, empty, w.nodes, fmt.Sprintf("%d nodes", w.nodes), "node"); err != nil {
			return err
		}
	}
	if w.waiting {
		return w.wait(ctx, t, spaces)
	}
	if err := w.fill(ctx, t, spaces); err != nil {
		return fmt.Errorf("Pods of before: %w", err)
	}
	if w.sequential {
		return w.oneByOne(ctx, t, spaces)
	}
	if err := w.many(ctx, t, spaces); err != nil {
		return err
	}
	if w.large {
		_, err = share(ctx, t, empty, w.before+w.pods, fmt.Sprintf("%d nodes and %d Pods", w.nodes, w.before+w.pods), "Pod")
	}
	return err
}

// fill creates the Pods that exist before the measurement.
func (w workload) fill(ctx context.Context, t *benchrun.Trial, spaces []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, err := t.WatchBound(ctx, spaces[0])
	if err != nil {
		return err
	}
	if err := t.CreatePods(ctx, spaces[0], w.before, t.Set.Parallel, func() *corev1.Pod { return w.formBefore(spaces) }); err != nil {
		return err
	}
	_, err = seen.Wait(ctx, w.before, t.Set.Limit)
	return err
}

// many measures binds a second from the first creation to the last bind.
func (w workload) many(ctx context.Context, t *benchrun.Trial, spaces []string) error {
	seen, err := t.WatchBound(ctx, spaces[1])
	if err != nil {
		return err
	}
	before, err := t.CPU()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := t.CreatePods(ctx, spaces[1], w.pods, t.Set.Parallel, func() *corev1.Pod { return w.form(spaces) }); err != nil {
		return err
	}
	created := time.Since(start)
	last, err := seen.Wait(ctx, w.pods, t.Set.Limit)
	if err != nil {
		return err
	}
	benchrun.Progress("%s: created in %s, bound in %s", w.title(), created.Round(time.Millisecond), last.Sub(start).Round(time.Millisecond))
	t.R.Add(w.title()+", binds", "/s", float64(w.pods)/last.Sub(start).Seconds(), benchrun.Higher)
	return t.Cost(before, w.pods, w.title()+", processor time a Pod")
}

// wait measures binds a second of Pods that exist and were unschedulable, from the moment when the nodes become
// available. It is closer to the scheduler alone, because nothing is created meanwhile.
func (w workload) wait(ctx context.Context, t *benchrun.Trial, spaces []string) error {
	form := func() *corev1.Pod { return w.form(spaces) }
	if err := t.CreatePods(ctx, spaces[1], w.pods, t.Set.Parallel, form); err != nil {
		return err
	}
	if err := t.WaitUnschedulable(ctx, spaces[1], w.pods, t.Set.Limit); err != nil {
		return err
	}
	seen, err := t.WatchBound(ctx, spaces[1])
	if err != nil {
		return err
	}
	before, err := t.CPU()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := t.Release(ctx, w.nodes, t.Set.Parallel); err != nil {
		return err
	}
	released := time.Since(start)
	last, err := seen.Wait(ctx, w.pods, t.Set.Limit)
	if err != nil {
		return err
	}
	benchrun.Progress("%s: released in %s, bound in %s", w.title(), released.Round(time.Millisecond),
		last.Sub(start).Round(time.Millisecond))
	t.R.Add(w.title()+", binds", "/s", float64(w.pods)/last.Sub(start).Seconds(), benchrun.Higher)
	return t.Cost(before, w.pods, w.title()+", processor time a Pod")
}

// oneByOne measures the time from the start of a creation to the bind, with
// nothing else to do.
func (w workload) oneByOne(ctx context.Context, t *benchrun.Trial, spaces []string) error {
	seen, err := t.WatchBound(ctx, spaces[1])
	if err != nil {
		return err
	}
	pods := benchrun.ResourceClient{Door: t.Core, Namespace: spaces[1], Resource: "pods"}
	var samples []time.Duration
	for i := range w.pods {
		pod := w.form(spaces)
		pod.Namespace, pod.Name = spaces[1], fmt.Sprintf("pod-%06d", i)
		start := time.Now()
		if err := pods.Create(ctx, pod); err != nil {
			return err
		}
		var at time.Time
		if err := seen.Until(ctx, t.Set.Limit, func() (ok bool) { at, ok = seen.At(pod.Name); return ok }); err != nil {
			return fmt.Errorf("Pod %d was not bound: %w", i, err)
		}
		samples = append(samples, at.Sub(start))
	}
	for _, p := range []int{50, 99} {
		t.R.Add(fmt.Sprintf("%d nodes, create to bound, sequential, p%d", w.nodes, p), "ms", benchrun.Millis(samples, p), benchrun.Lower)
	}
	return nil
}

// share measures memory after it has settled, and how much each of n new objects added.
func share(ctx context.Context, t *benchrun.Trial, before benchrun.Usage, n int, when, thing string) (benchrun.Usage, error) {
	if len(t.Pids) == 0 {
		return benchrun.Usage{}, nil
	}
	if err := wait.Sleep(ctx, t.Set.Settle); err != nil {
		return benchrun.Usage{}, err
	}
	now, err := benchrun.ReadUsage(t.Pids)
	if err != nil {
		return benchrun.Usage{}, err
	}
	t.R.Add(when+", memory (anonymous)", "MiB", float64(now.Anon)/(1<<20), benchrun.Lower)
	t.R.Add(when+", memory (RSS)", "MiB", float64(now.RSS)/(1<<20), benchrun.Lower)
	t.R.Add(fmt.Sprintf("%s, memory (anonymous) for each %s", when, thing), "KiB", float64(now.Anon-before.Anon)/1024/float64(n),
		benchrun.Lower)
	return now, nil
}

// colored returns a Pod that affinity terms of others can select.
func colored(color string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"color": color}}, Spec: benchrun.PodSpec("100m")}
}

func term(color, topology string, spaces []string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"color": color}},
		TopologyKey:   topology, Namespaces: spaces,
	}}
}

// antiAffine returns a Pod that needs a node without another of its kind.
func antiAffine(spaces []string) *corev1.Pod {
	pod := colored("green")
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: term("green", corev1.LabelHostname, spaces),
	}}
	return pod
}

// affine returns a Pod that needs a zone with another of its kind.
func affine(spaces []string) *corev1.Pod {
	pod := colored("blue")
	pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: term("blue", corev1.LabelTopologyZone, spaces),
	}}
	return pod
}

// spread returns a function that makes Pods with a topology spread constraint over the zones.
func spread(when corev1.UnsatisfiableConstraintAction) func([]string) *corev1.Pod {
	return func([]string) *corev1.Pod {
		pod := colored("blue")
		pod.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 5, TopologyKey: corev1.LabelTopologyZone, WhenUnsatisfiable: when,
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"color": "blue"}},
		}}
		return pod
	}
}

// important returns a Pod that fits only where others are preempted.
func important([]string) *corev1.Pod {
	pod := &corev1.Pod{Spec: benchrun.PodSpec("3")}
	pod.Spec.PriorityClassName = "bench-important"
	return pod
}
