package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"proa.dev/test/bench/benchrun"
)

// wake is a write, and what the controller that it wakes does about it.
type wake struct {
	name string
	// prepare creates what n writes need, if anything.
	prepare func(ctx context.Context, n int) error
	// write makes the i-th write, and returns the name of the written object.
	write func(ctx context.Context, i int) (string, error)
	// trace is the resource that the controller writes.
	trace benchrun.ResourceClient
	// mark tells whether an event shows the controller's reaction to the written object.
	mark func(s benchrun.Seen, name string) bool
}

// wakes measures the time from the start of a write until a watch shows the reaction of a controller.
func wakes(ctx context.Context, t *benchrun.Trial) error {
	ns, err := t.NewNamespace(ctx, "wake")
	if err != nil {
		return err
	}
	return measureWakes(ctx, t, podWakes(t, ns))
}

// wakeSlices does the same for EndpointSlices, which contain only Pods of nodes that exist. The one node is cordoned,
// so that the scheduler does nothing.
func wakeSlices(ctx context.Context, t *benchrun.Trial) error {
	ns, err := t.NewNamespace(ctx, "wake")
	if err != nil {
		return err
	}
	object := benchrun.Node(0, 1)
	object.Spec.Unschedulable = true
	if err := (benchrun.ResourceClient{Door: t.Core, Resource: "nodes"}).Create(ctx, object); err != nil {
		return err
	}
	return measureWakes(ctx, t, sliceWakes(t, ns))
}

func measureWakes(ctx context.Context, t *benchrun.Trial, all []wake) error {
	for _, w := range all {
		if err := measureWake(ctx, t, w); err != nil {
			t.R.AddFailure(w.name, err)
		}
	}
	return ctx.Err()
}

func measureWake(ctx context.Context, t *benchrun.Trial, w wake) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const asleep = 10 // the first few wake everything up
	if w.prepare != nil {
		if err := w.prepare(ctx, t.Set.Wakes+asleep); err != nil {
			return err
		}
	}
	events := make(chan benchrun.Seen, 1<<16)
	if err := w.trace.Follow(ctx, func(s benchrun.Seen) { events <- s }); err != nil {
		return err
	}
	var samples []time.Duration
	for i := range t.Set.Wakes + asleep {
		start := time.Now()
		name, err := w.write(ctx, i)
		if err != nil {
			return fmt.Errorf("write %d: %w", i, err)
		}
		at, err := waitMark(ctx, events, func(s benchrun.Seen) bool { return w.mark(s, name) })
		if err != nil {
			return fmt.Errorf("write %d: %w", i, err)
		}
		if i >= asleep {
			samples = append(samples, at.Sub(start))
		}
	}
	t.R.Add(w.name+", p50", "ms", benchrun.Millis(samples, 50), benchrun.Lower)
	t.R.Add(w.name+", p99", "ms", benchrun.Millis(samples, 99), benchrun.Lower)
	return nil
}

func waitMark(ctx context.Context, events <-chan benchrun.Seen, mark func(benchrun.Seen) bool) (time.Time, error) {
	timeout := time.After(30 * time.Second)
	for {
		select {
		case s := <-events:
			if mark(s) {
				return s.At, nil
			}
		case <-timeout:
			return time.Time{}, errors.New("nothing was done about it within 30 s")
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// podWakes returns controllers that are woken, each by a write of another kind.
func podWakes(t *benchrun.Trial, ns string) []wake {
	pods := benchrun.ResourceClient{Door: t.Core, Namespace: ns, Resource: "pods"}
	sets := benchrun.ResourceClient{Door: t.Apps, Namespace: ns, Resource: "replicasets"}
	return []wake{
		{
			name: "ReplicaSet to its Pod", trace: pods, mark: ownedBy,
			write: func(ctx context.Context, i int) (string, error) {
				object := replicaSet(ns, fmt.Sprintf("set-%d", i))
				return object.Name, sets.Create(ctx, object)
			},
		},
		{
			name: "delete of a ReplicaSet to the end of its Pod", trace: pods,
			mark: func(s benchrun.Seen, name string) bool { return s.Kind == watch.Deleted && owner(s) == name },
			write: func(ctx context.Context, i int) (string, error) {
				name := fmt.Sprintf("set-%d", i)
				return name, sets.Remove(ctx, name, &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
			},
		},
		{
			name: "Deployment to its Pod", trace: pods,
			mark: func(s benchrun.Seen, name string) bool {
				return s.Kind == watch.Added && strings.HasPrefix(owner(s), name+"-")
			},
			write: func(ctx context.Context, i int) (string, error) {
				object := benchrun.Deployment(ns, fmt.Sprintf("deployment-%04d", i), 1)
				return object.Name, benchrun.ResourceClient{Door: t.Apps, Namespace: ns, Resource: "deployments"}.Create(ctx, object)
			},
		},
		{
			name: "Job to its Pod", trace: pods, mark: ownedBy,
			write: func(ctx context.Context, i int) (string, error) {
				object := job(ns, fmt.Sprintf("job-%d", i))
				return object.Name, benchrun.ResourceClient{Door: t.Batch, Namespace: ns, Resource: "jobs"}.Create(ctx, object)
			},
		},
		{
			name: "Namespace to its ServiceAccount", trace: benchrun.ResourceClient{Door: t.Core, Resource: "serviceaccounts"},
			mark: func(s benchrun.Seen, name string) bool {
				x, ok := s.Object.(*corev1.ServiceAccount)
				return ok && s.Kind == watch.Added && x.Namespace == name
			},
			write: func(ctx context.Context, i int) (string, error) {
				object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", ns, i), Labels: benchrun.OwnLabels()}}
				return object.Name, benchrun.ResourceClient{Door: t.Core, Resource: "namespaces"}.Create(ctx, object)
			},
		},
	}
}

// sliceWakes returns the two ways to wake the EndpointSlice controller.
func sliceWakes(t *benchrun.Trial, ns string) []wake {
	slices := benchrun.ResourceClient{Door: t.Discovery, Namespace: ns, Resource: "endpointslices"}
	pods := benchrun.ResourceClient{Door: t.Core, Namespace: ns, Resource: "pods"}
	name := func(i int) string { return fmt.Sprintf("service-%d", i) }
	return []wake{
		{
			name: "Service to its EndpointSlice", trace: slices,
			mark: func(s benchrun.Seen, name string) bool { return s.Kind == watch.Added && serviceOf(s) == name },
			write: func(ctx context.Context, i int) (string, error) {
				object := service(ns, name(i))
				return object.Name, benchrun.ResourceClient{Door: t.Core, Namespace: ns, Resource: "services"}.Create(ctx, object)
			},
		},
		{
			name: "ready Pod to its EndpointSlice", trace: slices, mark: hasEndpoint,
			prepare: func(ctx context.Context, n int) error {
				for i := range n {
					pod := benchrun.PlainPod()
					pod.Name, pod.Namespace, pod.Labels, pod.Spec.NodeName = name(i), ns, map[string]string{"app": name(i)},
						benchrun.NodeName(0)
					if err := pods.Create(ctx, pod); err != nil {
						return err
					}
				}
				return nil
			},
			write: func(ctx context.Context, i int) (string, error) { return name(i), t.SetRunning(ctx, pods, name(i), i) },
		},
	}
}

func replicaSet(namespace, name string) *appsv1.ReplicaSet {
	from := benchrun.Deployment(namespace, name, 1).Spec
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.ReplicaSetSpec{Replicas: from.Replicas, Selector: from.Selector, Template: from.Template},
	}
}

func job(namespace, name string) *batchv1.Job {
	spec := benchrun.PodSpec("10m")
	spec.RestartPolicy = corev1.RestartPolicyNever
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
	}
}

func service(namespace, name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// owner returns the name of the controller of an object.
func owner(s benchrun.Seen) string {
	object, err := meta.Accessor(s.Object)
	if err != nil {
		return ""
	}
	if ref := metav1.GetControllerOf(object); ref != nil {
		return ref.Name
	}
	return ""
}

func ownedBy(s benchrun.Seen, name string) bool { return s.Kind == watch.Added && owner(s) == name }

func serviceOf(s benchrun.Seen) string {
	if x, ok := s.Object.(*discoveryv1.EndpointSlice); ok {
		return x.Labels[discoveryv1.LabelServiceName]
	}
	return ""
}

// hasEndpoint tells whether the slice of a Service has a ready endpoint.
func hasEndpoint(s benchrun.Seen, name string) bool {
	x, ok := s.Object.(*discoveryv1.EndpointSlice)
	if !ok || serviceOf(s) != name {
		return false
	}
	for _, e := range x.Endpoints {
		if e.Conditions.Ready != nil && *e.Conditions.Ready {
			return true
		}
	}
	return false
}
