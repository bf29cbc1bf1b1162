package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// workloads are those of our own questions and some with the shapes of
// upstream's scheduler_perf; large numbers are cut so that each takes at most
// two minutes.
func workloads() []workload {
	plain := func([]string) *corev1.Pod { return plainPod() }
	like := func(cpu string) func([]string) *corev1.Pod {
		return func([]string) *corev1.Pod { return &corev1.Pod{Spec: podSpec(cpu)} }
	}
	return []workload{
		{name: "100 nodes", nodes: 100, zones: 3, before: 100, pods: 3000, formBefore: plain, form: plain},
		{name: "100 nodes, Pods that wait", nodes: 100, zones: 3, pods: 3000, form: plain, waiting: true},
		{name: "1000 nodes", nodes: 1000, zones: 3, before: 100, pods: 5000, formBefore: plain, form: plain},
		{name: "1000 nodes, Pods that wait", nodes: 1000, zones: 3, pods: 3000, form: plain, waiting: true},
		{name: "one by one", nodes: 1000, zones: 3, before: 100, pods: 500, formBefore: plain, form: plain, sequential: true},
		{name: "SchedulingBasic", shape: true, nodes: 5000, zones: 3, before: 1000, pods: 3000, formBefore: like("100m"), form: like("100m")},
		{name: "SchedulingPodAntiAffinity", shape: true, nodes: 5000, zones: 3, before: 1000, pods: 1000, formBefore: antiAffine, form: antiAffine},
		{name: "SchedulingPodAffinity", shape: true, nodes: 5000, zones: 1, before: 3000, pods: 1000, formBefore: affine, form: affine},
		{name: "TopologySpreading", shape: true, nodes: 5000, zones: 3, before: 3000, pods: 2000, formBefore: like("100m"), form: spread(corev1.DoNotSchedule)},
		{name: "PreferredTopologySpreading", shape: true, nodes: 5000, zones: 3, before: 3000, pods: 2000, formBefore: like("100m"), form: spread(corev1.ScheduleAnyway)},
		{name: "PreemptionBasic", shape: true, nodes: 500, zones: 3, before: 2000, pods: 500, formBefore: like("900m"), form: important, classes: true},
		{name: "30000 Pods", nodes: 5000, zones: 3, before: 1000, pods: 29000, formBefore: plain, form: plain, large: true},
	}
}

func scheduleSteps(set settings) []step {
	var out []step
	for _, w := range workloads() {
		w.nodes, w.pods = set.scaled(w.nodes), set.scaled(w.pods)
		if w.before > 0 {
			w.before = set.scaled(w.before)
		}
		out = append(out, step{name: w.name, ours: w.large, run: w.run})
	}
	return out
}

// title is how the rows of a workload begin.
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

func (w workload) run(ctx context.Context, t *trial) error {
	empty, err := read(t.pids)
	if err != nil {
		return err
	}
	if err := t.nodes(ctx, fleet{w.nodes, w.zones, w.waiting}, t.set.parallel); err != nil {
		return err
	}
	if w.classes {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "bench-important", Labels: ours()}, Value: 1000}
		if err := (place{door: t.scheduling, resource: "priorityclasses"}).create(ctx, class); err != nil {
			return err
		}
	}
	var spaces []string
	for range 2 {
		ns, err := t.newNamespace(ctx, "schedule")
		if err != nil {
			return err
		}
		spaces = append(spaces, ns)
	}
	if w.large {
		if empty, err = t.share(ctx, empty, w.nodes, fmt.Sprintf("%d nodes", w.nodes), "node"); err != nil {
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
		_, err = t.share(ctx, empty, w.before+w.pods, fmt.Sprintf("%d nodes and %d Pods", w.nodes, w.before+w.pods), "Pod")
	}
	return err
}

// fill makes the Pods that are there before.
func (w workload) fill(ctx context.Context, t *trial, spaces []string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	seen, err := t.watchBound(ctx, spaces[0])
	if err != nil {
		return err
	}
	if err := t.createPods(ctx, spaces[0], w.before, t.set.parallel, func() *corev1.Pod { return w.formBefore(spaces) }); err != nil {
		return err
	}
	_, err = seen.wait(ctx, w.before, t.set.limit)
	return err
}

// many measures binds a second from the first creation to the last bind.
func (w workload) many(ctx context.Context, t *trial, spaces []string) error {
	seen, err := t.watchBound(ctx, spaces[1])
	if err != nil {
		return err
	}
	before, err := t.cpu()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := t.createPods(ctx, spaces[1], w.pods, t.set.parallel, func() *corev1.Pod { return w.form(spaces) }); err != nil {
		return err
	}
	created := time.Since(start)
	last, err := seen.wait(ctx, w.pods, t.set.limit)
	if err != nil {
		return err
	}
	progress("%s: created in %s, bound in %s", w.title(), created.Round(time.Millisecond), last.Sub(start).Round(time.Millisecond))
	t.r.add(w.title()+", binds", "/s", float64(w.pods)/last.Sub(start).Seconds(), higher)
	return t.cost(before, w.pods, w.title()+", processor time a Pod")
}

// wait measures binds a second of Pods that are all there and found no node,
// from the moment that the nodes are released. It is closer to the scheduler
// alone: nobody creates anything meanwhile.
func (w workload) wait(ctx context.Context, t *trial, spaces []string) error {
	form := func() *corev1.Pod { return w.form(spaces) }
	if err := t.createPods(ctx, spaces[1], w.pods, t.set.parallel, form); err != nil {
		return err
	}
	if err := t.waitUnschedulable(ctx, spaces[1], w.pods, t.set.limit); err != nil {
		return err
	}
	seen, err := t.watchBound(ctx, spaces[1])
	if err != nil {
		return err
	}
	before, err := t.cpu()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := t.release(ctx, w.nodes, t.set.parallel); err != nil {
		return err
	}
	released := time.Since(start)
	last, err := seen.wait(ctx, w.pods, t.set.limit)
	if err != nil {
		return err
	}
	progress("%s: released in %s, bound in %s", w.title(), released.Round(time.Millisecond), last.Sub(start).Round(time.Millisecond))
	t.r.add(w.title()+", binds", "/s", float64(w.pods)/last.Sub(start).Seconds(), higher)
	return t.cost(before, w.pods, w.title()+", processor time a Pod")
}

// oneByOne measures the time from the start of a creation to the bind, with
// nothing else to do.
func (w workload) oneByOne(ctx context.Context, t *trial, spaces []string) error {
	seen, err := t.watchBound(ctx, spaces[1])
	if err != nil {
		return err
	}
	pods := place{door: t.core, namespace: spaces[1], resource: "pods"}
	var samples []time.Duration
	for i := range w.pods {
		pod := w.form(spaces)
		pod.Namespace, pod.Name = spaces[1], fmt.Sprintf("pod-%06d", i)
		start := time.Now()
		if err := pods.create(ctx, pod); err != nil {
			return err
		}
		var at time.Time
		if err := seen.until(ctx, t.set.limit, func() (ok bool) { at, ok = seen.at(pod.Name); return ok }); err != nil {
			return fmt.Errorf("Pod %d was not bound: %w", i, err)
		}
		samples = append(samples, at.Sub(start))
	}
	for _, p := range []int{50, 99} {
		t.r.add(fmt.Sprintf("%d nodes, create to bound, sequential, p%d", w.nodes, p), "ms", millis(samples, p), lower)
	}
	return nil
}

// share measures memory after a rest, and what each of n new things added.
func (t *trial) share(ctx context.Context, before usage, n int, when, thing string) (usage, error) {
	if len(t.pids) == 0 {
		return usage{}, nil
	}
	if err := sleep(ctx, t.set.settle); err != nil {
		return usage{}, err
	}
	now, err := read(t.pids)
	if err != nil {
		return usage{}, err
	}
	t.r.add(when+", memory (RSS)", "MiB", float64(now.rss)/(1<<20), lower)
	t.r.add(when+", memory (anonymous)", "MiB", float64(now.anon)/(1<<20), lower)
	t.r.add(fmt.Sprintf("%s, memory (anonymous) for each %s", when, thing), "KiB", float64(now.anon-before.anon)/1024/float64(n), lower)
	return now, nil
}

// colored is a Pod that the terms of others can find.
func colored(color string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"color": color}}, Spec: podSpec("100m")}
}

func term(color, topology string, spaces []string) []corev1.PodAffinityTerm {
	return []corev1.PodAffinityTerm{{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"color": color}},
		TopologyKey:   topology, Namespaces: spaces,
	}}
}

// antiAffine is a Pod that wants a node without another of its kind.
func antiAffine(spaces []string) *corev1.Pod {
	pod := colored("green")
	pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: term("green", corev1.LabelHostname, spaces),
	}}
	return pod
}

// affine is a Pod that wants a zone with another of its kind.
func affine(spaces []string) *corev1.Pod {
	pod := colored("blue")
	pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: term("blue", corev1.LabelTopologyZone, spaces),
	}}
	return pod
}

// spread makes Pods that want to be spread over the zones.
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

// important is a Pod that fits only where others have to go.
func important([]string) *corev1.Pod {
	pod := &corev1.Pod{Spec: podSpec("3")}
	pod.Spec.PriorityClassName = "bench-important"
	return pod
}
