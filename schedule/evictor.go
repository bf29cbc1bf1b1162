package schedule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/gr"
)

// evictor ends the victims of preemptions, in the background. The last victim of a pod goes last: when it is on its way out
// the pod may be tried again, for then it sees that its victims are leaving.
type evictor struct {
	client   client.Client
	log      *slog.Logger
	pods     Cluster
	events   *events
	metrics  *Metrics
	activate func(...types.UID)
	spawn    func(func(context.Context))

	mu   sync.Mutex                // guards what follows
	busy map[types.UID]*corev1.Pod // pods whose victims are being ended, with the last victim once it is its turn
	shut *Verdict
}

func newEvictor(deps Deps) *evictor {
	return &evictor{
		client: deps.Client, log: deps.Log, pods: deps.Views, events: deps.Events, metrics: deps.Metrics, activate: deps.Activate, spawn: deps.Go,
		busy: map[types.UID]*corev1.Pod{}, shut: NotEver("waiting for the preemption for this pod to be finished"),
	}
}

// gate is closed while a pod's victims are being ended.
func (e *evictor) gate(pod *corev1.Pod) *Verdict {
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
	return e.shut
}

func (e *evictor) set(uid types.UID, last *corev1.Pod) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy[uid] = last
}

func (c *candidate) message() string {
	return fmt.Sprintf("preemption: found a potential placement for pod on node %v, preempting %d victims", c.node, len(c.victims))
}

// start ends the victims of a candidate. Pods that are less important and wait for the node have to look elsewhere.
func (e *evictor) start(a Attempt, c candidate) {
	if e.metrics != nil {
		e.metrics.Victims.Observe(float64(len(c.victims)))
	}
	victims := slices.DeleteFunc(slices.Clone(c.victims), func(v *PodInfo) bool { return v.Pod.DeletionTimestamp != nil })
	if len(victims) == 0 || e.spawn == nil {
		return
	}
	var lesser []*corev1.Pod
	for _, p := range a.Snapshot.Nominated(c.node) {
		if p.Priority() < a.Pod.Priority() {
			lesser = append(lesser, p.Pod)
		}
	}
	pod := a.Pod.Pod
	e.set(pod.UID, nil)
	e.spawn(func(ctx context.Context) {
		cleared := e.clear(ctx, lesser)
		gone, err := e.end(ctx, pod, victims, c.node)
		err = errors.Join(cleared, err)
		e.mu.Lock()
		delete(e.busy, pod.UID)
		e.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			e.log.WarnContext(ctx, "preempt pods", "namespace", pod.Namespace, "name", pod.Name, "node", c.node, "err", err)
		}
		if err != nil || gone { // nobody's leaving will wake the pod
			e.activate(pod.UID)
		}
	})
}

// end ends all victims, the last alone. It returns true if that one was gone already.
func (e *evictor) end(ctx context.Context, pod *corev1.Pod, victims []*PodInfo, node string) (bool, error) {
	last := len(victims) - 1
	errs := make([]error, last)
	var wg sync.WaitGroup
	for i, v := range victims[:last] {
		wg.Go(func() { _, errs[i] = e.endOne(ctx, pod, v.Pod, node) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return false, err
	}
	e.set(pod.UID, victims[last].Pod)
	return e.endOne(ctx, pod, victims[last].Pod, node)
}

// endOne ends one victim. It returns true if it was gone already.
func (e *evictor) endOne(ctx context.Context, pod, victim *corev1.Pod, node string) (bool, error) {
	condition := corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler,
		Message: pod.Spec.SchedulerName + ": preempting to accommodate a higher priority pod",
	}
	err := e.amend(ctx, victim, func(p *corev1.Pod) bool {
		condition.ObservedGeneration = p.Generation
		return setPodCondition(&p.Status, condition)
	})
	if err == nil {
		err = e.client.Delete(ctx, gr.Pods, victim.Namespace, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) && e.isGone(ctx, victim) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("end pod %s/%s: %w", victim.Namespace, victim.Name, err)
	}
	ev := e.events.event(victim, pod.Spec.SchedulerName, corev1.EventTypeNormal, "Preempted", "Preempting",
		fmt.Sprintf("Preempted by pod %v on node %v", pod.UID, node))
	ev.Related = reference(pod)
	e.events.send(ev)
	return false, nil
}

// isGone says that a pod is no longer there.
func (e *evictor) isGone(ctx context.Context, pod *corev1.Pod) bool {
	o, err := e.client.Get(ctx, gr.Pods, pod.Namespace, pod.Name, "")
	return apierrors.IsNotFound(err) || err == nil && o.GetUID() != pod.UID
}

// clear takes their nomination from pods.
func (e *evictor) clear(ctx context.Context, pods []*corev1.Pod) error {
	var errs []error
	for _, p := range pods {
		err := e.amend(ctx, p, func(p *corev1.Pod) bool {
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

// amend changes the status of a pod. Who writes to it at the same time comes first; then there is another look.
func (e *evictor) amend(ctx context.Context, pod *corev1.Pod, change func(*corev1.Pod) bool) error {
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

// setPodCondition puts a condition into a status. It returns false if it is there already.
func setPodCondition(s *corev1.PodStatus, c corev1.PodCondition) bool {
	c.LastTransitionTime = metav1.Now()
	i := slices.IndexFunc(s.Conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return true
	}
	old := s.Conditions[i]
	c.LastProbeTime = old.LastProbeTime
	if old.Status == c.Status {
		c.LastTransitionTime = old.LastTransitionTime
	}
	s.Conditions[i] = c
	return old != c
}
