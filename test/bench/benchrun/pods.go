package benchrun

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"proa.dev/internal/wait"
)

// PodSpec requests some processor time and memory, and nothing else.
func PodSpec(cpu string) corev1.PodSpec {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("100Mi")}
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{
			Name: "pause", Image: "registry.k8s.io/pause:3.10.1",
			Ports:     []corev1.ContainerPort{{ContainerPort: 80}},
			Resources: corev1.ResourceRequirements{Requests: room, Limits: maps.Clone(room)},
		}},
	}
}

// PlainPod returns the Pod of most measurements, which is so small that no node becomes full.
func PlainPod() *corev1.Pod { return &corev1.Pod{Spec: PodSpec("10m")} }

// bound collects the times at which Pods of one namespace were seen with a node.
type bound struct {
	pods ResourceClient

	mu   sync.Mutex
	seen map[string]time.Time
	more chan struct{} // holds a token after each new Pod
}

// WatchBound begins to collect.
func (c *Cluster) WatchBound(ctx context.Context, namespace string) (*bound, error) {
	b := &bound{
		pods: ResourceClient{Door: c.Core, Namespace: namespace, Resource: "pods", Fields: "spec.nodeName!="},
		seen: map[string]time.Time{}, more: make(chan struct{}, 1),
	}
	err := b.pods.Follow(ctx, func(s Seen) {
		pod, ok := s.Object.(*corev1.Pod)
		if !ok || s.Kind == watch.Deleted || pod.Spec.NodeName == "" {
			return
		}
		b.mu.Lock()
		if _, ok := b.seen[pod.Name]; !ok {
			b.seen[pod.Name] = s.At
		}
		b.mu.Unlock()
		select {
		case b.more <- struct{}{}:
		default:
		}
	})
	return b, err
}

func (b *bound) At(name string) (time.Time, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, ok := b.seen[name]
	return at, ok
}

func (b *bound) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.seen)
}

// Wait waits for n Pods and returns when the last of them was seen.
func (b *bound) Wait(ctx context.Context, n int, limit time.Duration) (time.Time, error) {
	if err := b.Until(ctx, limit, func() bool { return b.count() >= n }); err != nil {
		return time.Time{}, fmt.Errorf("%d of %d Pods were bound: %w", b.count(), n, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var last time.Time
	for _, at := range b.seen {
		if at.After(last) {
			last = at
		}
	}
	return last, nil
}

func (b *bound) Until(ctx context.Context, limit time.Duration, done func() bool) error {
	timeout := time.After(limit)
	for !done() {
		select {
		case <-b.more:
		case <-timeout:
			return fmt.Errorf("not within %s", limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// CreatePods creates n Pods of one form with names of their own.
func (c *Cluster) CreatePods(ctx context.Context, namespace string, n, parallel int, form func() *corev1.Pod) error {
	pods := ResourceClient{Door: c.Core, Namespace: namespace, Resource: "pods"}
	_, _, err := Workers(parallel, time.Hour, n, func(i int) error {
		pod := form()
		pod.Namespace, pod.Name = namespace, fmt.Sprintf("pod-%06d", i)
		return pods.Create(ctx, pod)
	})
	if err != nil {
		return fmt.Errorf("create Pods: %w", err)
	}
	return nil
}

// WaitUnschedulable waits until the scheduler has reported n Pods as unschedulable, and for the longest pause until it
// would retry them.
func (c *Cluster) WaitUnschedulable(ctx context.Context, namespace string, n int, limit time.Duration) error {
	const backoff = 10 * time.Second
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	told := make(chan string, 1<<16)
	err := ResourceClient{Door: c.Core, Namespace: namespace, Resource: "pods"}.Follow(ctx, func(s Seen) {
		pod, ok := s.Object.(*corev1.Pod)
		if !ok {
			return
		}
		for _, x := range pod.Status.Conditions {
			if x.Type == corev1.PodScheduled && x.Reason == corev1.PodReasonUnschedulable {
				told <- pod.Name
			}
		}
	})
	if err != nil {
		return err
	}
	names := map[string]bool{}
	timeout := time.After(limit)
	for len(names) < n {
		select {
		case name := <-told:
			names[name] = true
		case <-timeout:
			return fmt.Errorf("only %d of %d Pods were found unschedulable within %s", len(names), n, limit)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return wait.Sleep(ctx, backoff)
}

// runningStatus returns the patch by which a kubelet reports a Pod that runs.
func runningStatus(i int) []byte {
	return fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":"10.%d.%d.%d","podIPs":[{"ip":"10.%[1]d.%[2]d.%[3]d"}],"startTime":%[4]q,`+
		`"conditions":[{"type":"Initialized","status":"True","lastTransitionTime":%[4]q},{"type":"ContainersReady","status":"True","lastTransitionTime":%[4]q},`+
		`{"type":"Ready","status":"True","lastTransitionTime":%[4]q}],`+
		`"containerStatuses":[{"name":"pause","ready":true,"started":true,"restartCount":0,"image":"registry.k8s.io/pause:3.10.1","imageID":"","state":{"running":{"startedAt":%[4]q}}}]}}`,
		64+i>>16&63, i>>8&255, i&255, time.Now().UTC().Format(time.RFC3339))
}

// Kubelets plays the kubelets of all nodes for one namespace: Pods that are bound run at once, and Pods that are
// deleted are gone at once.
func (c *Cluster) Kubelets(ctx context.Context, namespace string, parallel int) error {
	pods := ResourceClient{Door: c.Core, Namespace: namespace, Resource: "pods", Fields: "spec.nodeName!="}
	work := make(chan *corev1.Pod, 1<<16)
	for hand := range parallel {
		go func() {
			count := hand
			for {
				select {
				case <-ctx.Done():
					return
				case pod := <-work:
					count += parallel
					c.play(ctx, pods, pod, count)
				}
			}
		}()
	}
	return pods.Follow(ctx, func(s Seen) {
		if pod, ok := s.Object.(*corev1.Pod); ok && s.Kind != watch.Deleted {
			select {
			case work <- pod:
			case <-ctx.Done():
			}
		}
	})
}

// play reacts to one event as a kubelet does. Errors are ignored: the next event of the Pod corrects them, or the limit
// of the measurement ends it.
func (c *Cluster) play(ctx context.Context, pods ResourceClient, pod *corev1.Pod, i int) {
	switch {
	case pod.DeletionTimestamp != nil:
		_ = pods.Remove(ctx, pod.Name,
			&metav1.DeleteOptions{GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	case pod.Status.Phase == corev1.PodPending:
		_ = c.SetRunning(ctx, pods, pod.Name, i)
	}
}

// SetRunning reports, as a kubelet does, that a Pod runs.
func (c *Cluster) SetRunning(ctx context.Context, pods ResourceClient, name string, i int) error {
	return pods.Door.Patch(types.StrategicMergePatchType).Namespace(pods.Namespace).Resource("pods").Name(name).SubResource("status").
		Body(runningStatus(i)).Do(ctx).Error()
}
