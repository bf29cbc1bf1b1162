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
)

// wake is a write and the trace of the loop that it wakes.
type wake struct {
	name string
	// prepare makes what n writes need, if anything.
	prepare func(ctx context.Context, n int) error
	// write does the write with the number i, and names what it wrote.
	write func(ctx context.Context, i int) (string, error)
	// trace is where the loop leaves its mark.
	trace place
	// mark tells whether an event is the mark of the written object.
	mark func(s seen, name string) bool
}

// wakes measures the time from the start of a write until a watch shows what
// the woken loop did about it.
func wakes(ctx context.Context, t *trial) error {
	ns, err := t.newNamespace(ctx, "wake")
	if err != nil {
		return err
	}
	return t.measureWakes(ctx, t.podWakes(ns))
}

// wakeSlices does the same for EndpointSlices, which hold only Pods of nodes
// that exist. The one node is cordoned, so that the scheduler stays asleep.
func wakeSlices(ctx context.Context, t *trial) error {
	ns, err := t.newNamespace(ctx, "wake")
	if err != nil {
		return err
	}
	object := node(0, 1)
	object.Spec.Unschedulable = true
	if err := (place{door: t.core, resource: "nodes"}).create(ctx, object); err != nil {
		return err
	}
	return t.measureWakes(ctx, t.sliceWakes(ns))
}

func (t *trial) measureWakes(ctx context.Context, all []wake) error {
	for _, w := range all {
		if err := t.measureWake(ctx, w); err != nil {
			t.r.failed(w.name, err)
		}
	}
	return ctx.Err()
}

func (t *trial) measureWake(ctx context.Context, w wake) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	const asleep = 10 // the first few wake everything up
	if w.prepare != nil {
		if err := w.prepare(ctx, t.set.wakes+asleep); err != nil {
			return err
		}
	}
	events := make(chan seen, 1<<16)
	if err := w.trace.follow(ctx, func(s seen) { events <- s }); err != nil {
		return err
	}
	var samples []time.Duration
	for i := range t.set.wakes + asleep {
		start := time.Now()
		name, err := w.write(ctx, i)
		if err != nil {
			return fmt.Errorf("write %d: %w", i, err)
		}
		at, err := waitMark(ctx, events, func(s seen) bool { return w.mark(s, name) })
		if err != nil {
			return fmt.Errorf("write %d: %w", i, err)
		}
		if i >= asleep {
			samples = append(samples, at.Sub(start))
		}
	}
	t.r.add(w.name+", p50", "ms", millis(samples, 50), lower)
	t.r.add(w.name+", p99", "ms", millis(samples, 99), lower)
	return nil
}

func waitMark(ctx context.Context, events <-chan seen, mark func(seen) bool) (time.Time, error) {
	timeout := time.After(30 * time.Second)
	for {
		select {
		case s := <-events:
			if mark(s) {
				return s.at, nil
			}
		case <-timeout:
			return time.Time{}, errors.New("nothing was done about it within 30 s")
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}

// podWakes are loops that are woken, each by a write of its own kind.
func (t *trial) podWakes(ns string) []wake {
	pods := place{door: t.core, namespace: ns, resource: "pods"}
	sets := place{door: t.apps, namespace: ns, resource: "replicasets"}
	return []wake{
		{
			name: "ReplicaSet to its Pod", trace: pods, mark: ownedBy,
			write: func(ctx context.Context, i int) (string, error) {
				object := replicaSet(ns, fmt.Sprintf("set-%d", i))
				return object.Name, sets.create(ctx, object)
			},
		},
		{
			name: "delete of a ReplicaSet to the end of its Pod", trace: pods,
			mark: func(s seen, name string) bool { return s.kind == watch.Deleted && owner(s) == name },
			write: func(ctx context.Context, i int) (string, error) {
				name := fmt.Sprintf("set-%d", i)
				return name, sets.remove(ctx, name, &metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
			},
		},
		{
			name: "Deployment to its Pod", trace: pods,
			mark: func(s seen, name string) bool {
				return s.kind == watch.Added && strings.HasPrefix(owner(s), name+"-")
			},
			write: func(ctx context.Context, i int) (string, error) {
				object := deployment(ns, fmt.Sprintf("deployment-%04d", i), 1)
				return object.Name, place{door: t.apps, namespace: ns, resource: "deployments"}.create(ctx, object)
			},
		},
		{
			name: "Job to its Pod", trace: pods, mark: ownedBy,
			write: func(ctx context.Context, i int) (string, error) {
				object := job(ns, fmt.Sprintf("job-%d", i))
				return object.Name, place{door: t.batch, namespace: ns, resource: "jobs"}.create(ctx, object)
			},
		},
		{
			name: "Namespace to its ServiceAccount", trace: place{door: t.core, resource: "serviceaccounts"},
			mark: func(s seen, name string) bool {
				x, ok := s.object.(*corev1.ServiceAccount)
				return ok && s.kind == watch.Added && x.Namespace == name
			},
			write: func(ctx context.Context, i int) (string, error) {
				object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", ns, i), Labels: ours()}}
				return object.Name, place{door: t.core, resource: "namespaces"}.create(ctx, object)
			},
		},
	}
}

// sliceWakes are the two ways to wake the loop of EndpointSlices.
func (t *trial) sliceWakes(ns string) []wake {
	slices := place{door: t.discovery, namespace: ns, resource: "endpointslices"}
	pods := place{door: t.core, namespace: ns, resource: "pods"}
	name := func(i int) string { return fmt.Sprintf("service-%d", i) }
	return []wake{
		{
			name: "Service to its EndpointSlice", trace: slices,
			mark: func(s seen, name string) bool { return s.kind == watch.Added && serviceOf(s) == name },
			write: func(ctx context.Context, i int) (string, error) {
				object := service(ns, name(i))
				return object.Name, place{door: t.core, namespace: ns, resource: "services"}.create(ctx, object)
			},
		},
		{
			name: "ready Pod to its EndpointSlice", trace: slices, mark: hasEndpoint,
			prepare: func(ctx context.Context, n int) error {
				for i := range n {
					pod := plainPod()
					pod.Name, pod.Namespace, pod.Labels, pod.Spec.NodeName = name(i), ns, map[string]string{"app": name(i)}, nodeName(0)
					if err := pods.create(ctx, pod); err != nil {
						return err
					}
				}
				return nil
			},
			write: func(ctx context.Context, i int) (string, error) { return name(i), t.setRunning(ctx, pods, name(i), i) },
		},
	}
}

func replicaSet(namespace, name string) *appsv1.ReplicaSet {
	from := deployment(namespace, name, 1).Spec
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       appsv1.ReplicaSetSpec{Replicas: from.Replicas, Selector: from.Selector, Template: from.Template},
	}
}

func job(namespace, name string) *batchv1.Job {
	spec := podSpec("10m")
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

// owner is the name of the controller of an object.
func owner(s seen) string {
	object, err := meta.Accessor(s.object)
	if err != nil {
		return ""
	}
	if ref := metav1.GetControllerOf(object); ref != nil {
		return ref.Name
	}
	return ""
}

func ownedBy(s seen, name string) bool { return s.kind == watch.Added && owner(s) == name }

func serviceOf(s seen) string {
	if x, ok := s.object.(*discoveryv1.EndpointSlice); ok {
		return x.Labels[discoveryv1.LabelServiceName]
	}
	return ""
}

// hasEndpoint tells that the slice of a Service has a ready endpoint.
func hasEndpoint(s seen, name string) bool {
	x, ok := s.object.(*discoveryv1.EndpointSlice)
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
