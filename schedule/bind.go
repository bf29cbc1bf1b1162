package schedule

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/eventseries"
	"proa.dev/schedule/framework"
)

// binding is a Pod that is to be bound to its node.
type binding struct {
	*attempt
	waits []permitWait
	slow  bool
}

// idleBinderTimeout is how long a goroutine that binds Pods waits for the next one.
const idleBinderTimeout = 10 * time.Second

// startBinding passes a Pod to an idle binding goroutine, or starts a new one. Goroutines are reused because their
// stacks have already grown.
func (s *scheduler) startBinding(ctx context.Context, f binding) {
	select {
	case s.idleBinders <- f:
	default:
		s.work.Go(func() { s.bindUntilIdle(ctx, f) })
	}
}

// bindUntilIdle binds Pods until there was none for idleBinderTimeout.
func (s *scheduler) bindUntilIdle(ctx context.Context, f binding) {
	timer := time.NewTimer(idleBinderTimeout)
	defer timer.Stop()
	for {
		s.bind(ctx, f.attempt, f.waits, f.slow)
		timer.Reset(idleBinderTimeout)
		select {
		case f = <-s.idleBinders:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// bind waits for permission, calls PreBind, writes the binding and calls PostBind.
func (s *scheduler) bind(ctx context.Context, t *attempt, waits []permitWait, slow bool) {
	if slow {
		// The nomination tells others, such as an autoscaler, where the Pod will be bound.
		s.nominate(ctx, t)
	}
	for _, w := range waits {
		begin := time.Now()
		s.recordWait(t, "permit", w.plugin)
		r := waitForPermission(ctx, w)
		s.recordStep(t, hop.Step{Name: "permit", Detail: w.plugin, Wait: time.Since(begin), Failed: r != nil}, begin)
		if r != nil {
			s.rejectAssumed(ctx, t, w.plugin, r)
			return
		}
	}
	if len(waits) > 0 {
		s.removeFromQueue(t.Entry)
	}
	if err := s.runPreBind(ctx, t); err != nil {
		s.failBinding(ctx, t, err)
		return
	}
	begin := time.Now()
	if slow {
		s.binds <- struct{}{}
	}
	defer func() { <-s.binds }()
	pod, node := t.info.Pod, t.decision.Node
	ctx = causedBy(ctx, pod)
	waited := time.Since(begin)
	err := s.writeBinding(ctx, t.profile, pod, node)
	failed := err != nil && !s.isBound(ctx, pod, node)
	s.recordStep(t, hop.Step{Name: "bind", Detail: node, Wait: waited, Failed: failed}, begin)
	if failed {
		s.failBinding(ctx, t, err)
		return
	}
	s.events.Record(pod, eventseries.Note{
		Controller: t.profile.Name, Type: corev1.EventTypeNormal, Reason: "Scheduled", Action: "Binding",
		Message: "Successfully assigned " + pod.Namespace + "/" + pod.Name + " to " + node,
	})
	s.metrics.scheduled(t, time.Now())
	s.recordAttempt(t, "")
	for i := range t.decision.Prepared {
		if p := &t.decision.Prepared[i]; p.PostBind != nil {
			p.PostBind(node)
		}
	}
}

// nominate writes the node of a Pod that is not bound yet to its status.
func (s *scheduler) nominate(ctx context.Context, t *attempt) {
	pod := s.current(t.info.Pod)
	if pod == nil || pod.Status.NominatedNodeName == t.decision.Node {
		return
	}
	next := pod.DeepCopy()
	next.Status.NominatedNodeName = t.decision.Node
	if _, err := s.writer.Update(causedBy(ctx, t.info.Pod), gr.Pods, next, "status"); err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "nominate a pod for its node", "namespace", pod.Namespace, "name", pod.Name, "err", err)
	}
}

// mustWaitBeforeBinding reports whether a Pod has to wait for something before it can be bound.
func mustWaitBeforeBinding(t *attempt, waits []permitWait) bool {
	return len(waits) > 0 || slices.ContainsFunc(t.decision.Prepared, func(p framework.PreparedPlugin) bool { return p.PreBind != nil })
}

// writeBinding binds a Pod to a node, or lets an extender do it.
func (s *scheduler) writeBinding(ctx context.Context, profile *framework.Profile, pod *corev1.Pod, node string) error {
	if e := profile.BinderFor(pod); e != nil {
		return e.BindPod(pod, node)
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if _, err := s.writer.Act(ctx, gr.Pods, pod.Namespace, pod.Name, "binding", binding); err != nil {
		return fmt.Errorf("running Bind plugin %q: %w", "DefaultBinder", err)
	}
	return nil
}

// isBound reports whether a Pod was bound although writing the binding returned an error, because the response was lost
// or another scheduler has bound it to the same node. Its resources must not be freed then.
func (s *scheduler) isBound(ctx context.Context, pod *corev1.Pod, node string) bool {
	if s.views[gr.Pods].Reach(ctx, 0) != nil {
		return false
	}
	o, found := s.views[gr.Pods].Get(pod.Namespace, pod.Name)
	return found && o.GetUID() == pod.UID && o.(*corev1.Pod).Spec.NodeName == node
}

// waitForPermission waits until a plugin allows the binding of a Pod, or rejects it.
func waitForPermission(ctx context.Context, w permitWait) *framework.Rejection {
	timer := time.NewTimer(w.Timeout)
	defer timer.Stop()
	select {
	case r := <-w.Wait:
		return r
	case <-timer.C:
		if w.GiveUp != nil && !w.GiveUp() {
			return <-w.Wait
		}
		return framework.Unschedulable(fmt.Sprintf("rejected due to timeout after waiting %v at plugin %v", w.Timeout, w.plugin))
	case <-ctx.Done():
		return framework.Failed(ctx.Err())
	}
}

// runPreBind calls PreBind of the plugins.
func (s *scheduler) runPreBind(ctx context.Context, t *attempt) error {
	for i := range t.decision.Prepared {
		p := &t.decision.Prepared[i]
		if p.PreBind == nil {
			continue
		}
		begin := time.Now()
		s.recordWait(t, "prebind", p.Name)
		err := p.PreBind(ctx, t.decision.Node)
		s.recordStep(t, hop.Step{Name: "prebind", Detail: p.Name, Wait: time.Since(begin), Failed: err != nil}, begin)
		if err != nil {
			return fmt.Errorf("running PreBind plugin %q: %w", p.Name, err)
		}
	}
	return nil
}

// failBinding returns a Pod to the queue whose binding has failed.
func (s *scheduler) failBinding(ctx context.Context, t *attempt, err error) {
	s.unassume(t, false)
	if ctx.Err() != nil {
		return
	}
	t.decision = &framework.Decision{Seed: t.decision.Seed, Total: t.decision.Total, Err: err}
	t.clearNomination = true
	s.fail(ctx, t, t.Entry)
}
