package preemption

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/eventseries"
	"proa.dev/schedule/framework"
)

// evictor evicts the victims of preemptions in the background. The last victim is evicted after all others: when it is
// terminating, the preempting Pod may be tried again, because then the views show that its victims are terminating.
type evictor struct {
	client       client.Client
	log          *slog.Logger
	pods         framework.Cluster
	events       *eventseries.Recorder
	victimCounts prometheus.Observer // the number of victims of each preemption
	activate     func(...types.UID)
	spawn        func(func(context.Context))

	mu         sync.Mutex                // guards what follows
	busy       map[types.UID]*corev1.Pod // Pods whose victims are being evicted, with the last victim once that is being evicted
	inProgress *framework.Rejection
}

func newEvictor(deps framework.Deps) *evictor {
	return &evictor{
		client: deps.Client, log: deps.Log, pods: deps.Views, events: deps.Events, victimCounts: deps.PreemptionVictims,
		activate: deps.Activate, spawn: deps.Go,
		busy: map[types.UID]*corev1.Pod{}, inProgress: framework.Unresolvable("waiting for the preemption for this pod to be finished"),
	}
}

// preEnqueue rejects a Pod while its victims are being evicted.
func (e *evictor) preEnqueue(pod *corev1.Pod) *framework.Rejection {
	e.mu.Lock()
	defer e.mu.Unlock()
	last, is := e.busy[pod.UID]
	if !is {
		return nil
	}
	if last != nil {
		o, found := e.pods.Get(gr.Pods, last.Namespace, last.Name)
		if !found || o.GetUID() != last.UID || o.GetDeletionTimestamp() != nil {
			return nil
		}
	}
	return e.inProgress
}

func (e *evictor) set(uid types.UID, last *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy[uid] = last
}

// candidateMessage returns the message about a preemption.
func candidateMessage(c *framework.PreemptionCandidate) string {
	return fmt.Sprintf("preemption: found a potential placement for pod on node %v, preempting %d victims", c.Node, len(c.Victims))
}

// start evicts the victims of a candidate in the background, and clears the nominations of Pods with lower priority for
// the node.
func (e *evictor) start(a framework.PostFilterInput, c framework.PreemptionCandidate) {
	if e.victimCounts != nil {
		e.victimCounts.Observe(float64(len(c.Victims)))
	}
	victims := slices.DeleteFunc(slices.Clone(c.Victims), func(v *framework.PodInfo) bool { return v.Pod.DeletionTimestamp != nil })
	if len(victims) == 0 || e.spawn == nil {
		return
	}
	var lesser []*corev1.Pod
	for _, p := range a.Snapshot.Nominated(c.Node) {
		if p.Priority() < a.Pod.Priority() {
			lesser = append(lesser, p.Pod)
		}
	}
	pod := a.Pod.Pod
	e.set(pod.UID, nil)
	e.spawn(func(ctx context.Context) {
		cleared := e.clearNominations(ctx, lesser)
		gone, err := e.evictAll(ctx, pod, victims, c.Node)
		err = errors.Join(cleared, err)
		e.mu.Lock()
		delete(e.busy, pod.UID)
		e.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "preempt pods", "namespace", pod.Namespace, "name", pod.Name, "node", c.Node, "err", err)
		}
		if err != nil || gone { // no deletion event will wake the Pod
			e.activate(pod.UID)
		}
	})
}

// evictAll evicts all victims, the last one after the others. It returns true if the last one did not exist any more.
func (e *evictor) evictAll(ctx context.Context, pod *corev1.Pod, victims []*framework.PodInfo, node string) (bool, error) {
	last := len(victims) - 1
	errs := make([]error, last)
	var wg sync.WaitGroup
	for i, v := range victims[:last] {
		wg.Go(func() { _, errs[i] = e.evictOne(ctx, pod, v.Pod, node) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	e.set(pod.UID, victims[last].Pod)
	return e.evictOne(ctx, pod, victims[last].Pod, node)
}

// evictOne evicts one victim. It returns true if it did not exist any more.
func (e *evictor) evictOne(ctx context.Context, pod, victim *corev1.Pod, node string) (bool, error) {
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		Message: pod.Spec.SchedulerName + ": preempting to accommodate a higher priority pod",
	}
	err := e.updateStatus(ctx, victim, func(p *corev1.Pod) bool {
		condition.ObservedGeneration = p.Generation
		return framework.SetPodCondition(&p.Status, condition)
	})
	if err == nil {
		err = e.client.Delete(ctx, gr.Pods, victim.Namespace, victim.Name,
			metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && e.isGone(ctx, victim) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("end pod %s/%s: %w", victim.Namespace, victim.Name, err)
	}
	e.events.Record(victim, eventseries.Note{
		Controller: pod.Spec.SchedulerName, Type: corev1.EventTypeNormal, Reason: "Preempted", Action: "Preempting",
		Message: fmt.Sprintf("Preempted by pod %v on node %v", pod.UID, node), Related: pod,
	})
	return false, nil
}

// isGone reports whether a Pod does not exist any more.
func (e *evictor) isGone(ctx context.Context, pod *corev1.Pod) bool {
	o, err := e.client.Get(ctx, gr.Pods, pod.Namespace, pod.Name, "")
	return apierrors.IsNotFound(err) || err == nil && o.GetUID() != pod.UID
}

// clearNominations removes the nominations of Pods.
func (e *evictor) clearNominations(ctx context.Context, pods []*corev1.Pod) error {
	var errs []error
	for _, p := range pods {
		err := e.updateStatus(ctx, p, func(p *corev1.Pod) bool {
			had := p.Status.NominatedNodeName != ""
			p.Status.NominatedNodeName = ""
			return had
		})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("clear the nomination of pod %s/%s: %w", p.Namespace, p.Name, err))
		}
	}
	return errors.Join(errs...)
}

// updateStatus changes the status of a Pod. After a conflict it retries with the current state.
func (e *evictor) updateStatus(ctx context.Context, pod *corev1.Pod, change func(*corev1.Pod) bool) error {
	next := pod.DeepCopy()
	for try := 0; ; try++ {
		if !change(next) {
			return nil
		}
		_, err := e.client.Update(ctx, gr.Pods, next, "status")
		if !apierrors.IsConflict(err) || try == 5 {
			return err
		}
		o, err := e.client.Get(ctx, gr.Pods, pod.Namespace, pod.Name, "")
		if err != nil {
			return err
		}
		if o.GetUID() != pod.UID {
			return apierrors.NewNotFound(gr.Pods, pod.Name)
		}
		next = o.(*corev1.Pod)
	}
}
