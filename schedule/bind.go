package schedule

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/client"
	"proa.dev/kinds/gr"
)

// flight is a pod on its way to its node.
type flight struct {
	*try
	waits []waiting
	slow  bool
}

// bindersStay is how long somebody who binds pods waits for another one.
const bindersStay = 10 * time.Second

// send gives a pod to somebody who has none to bind, or else to somebody new. Who has bound one already has a stack that is
// large enough, which is worth the trouble.
func (s *scheduler) send(ctx context.Context, f flight) {
	select {
	case s.idle <- f:
	default:
		s.work.Go(func() { s.fly(ctx, f) })
	}
}

// fly binds pods until there are none for a while.
func (s *scheduler) fly(ctx context.Context, f flight) {
	timer := time.NewTimer(bindersStay)
	defer timer.Stop()
	for {
		s.bind(ctx, f.try, f.waits, f.slow)
		timer.Reset(bindersStay)
		select {
		case f = <-s.idle:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// bind takes a pod through the steps that may have to wait, and writes its node.
func (s *scheduler) bind(ctx context.Context, t *try, waits []waiting, slow bool) {
	if slow {
		// Others, an autoscaler among them, shall know where the pod is going.
		s.expect(ctx, t)
	}
	for _, w := range waits {
		if v := wait(ctx, w); v != nil {
			s.turnBack(ctx, t, w.plugin, v)
			return
		}
	}
	if len(waits) > 0 {
		s.drop(t.Entry)
	}
	if err := s.prepareNode(ctx, t); err != nil {
		s.unbound(ctx, t, err)
		return
	}
	if slow {
		s.binds <- struct{}{}
	}
	defer func() { <-s.binds }()
	pod, node := t.info.Pod, t.decision.Node
	if rev, err := strconv.ParseInt(pod.ResourceVersion, 10, 64); err == nil {
		ctx = client.WithTrail(ctx, &client.Trail{CauseUID: pod.UID, CauseRev: rev})
	}
	if err := s.write(ctx, t.profile, pod, node); err != nil && !s.isBound(ctx, pod, node) {
		s.unbound(ctx, t, err)
		return
	}
	s.events.say(pod, t.profile.Name, corev1.EventTypeNormal, "Scheduled", "Binding",
		"Successfully assigned "+pod.Namespace+"/"+pod.Name+" to "+node)
	s.metrics.scheduled(t, time.Now())
	for i := range t.decision.parts {
		if p := &t.decision.parts[i]; p.PostBind != nil {
			p.PostBind(node)
		}
	}
}

// expect nominates a pod for the node it is on its way to.
func (s *scheduler) expect(ctx context.Context, t *try) {
	pod := s.current(t.info.Pod)
	if pod == nil || pod.Status.NominatedNodeName == t.decision.Node {
		return
	}
	next := pod.DeepCopy()
	next.Status.NominatedNodeName = t.decision.Node
	if _, err := s.writer.Update(ctx, gr.Pods, next, "status"); err != nil && ctx.Err() == nil {
		s.log.DebugContext(ctx, "nominate a pod for its node", "namespace", pod.Namespace, "name", pod.Name, "err", err)
	}
}

// isSlow says that a pod has to wait for something before it can be bound.
func isSlow(t *try, waits []waiting) bool {
	return len(waits) > 0 || slices.ContainsFunc(t.decision.parts, func(p part) bool { return p.PreBind != nil })
}

// write writes the node of a pod, or lets an extender do it.
func (s *scheduler) write(ctx context.Context, profile *Profile, pod *corev1.Pod, node string) error {
	if e := profile.binder(pod); e != nil {
		return e.bind(pod, node)
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

// isBound says that a binding was done although it failed, because its answer got lost or somebody else did the same. Its room
// must not be given away before the event of it comes.
func (s *scheduler) isBound(ctx context.Context, pod *corev1.Pod, node string) bool {
	if s.views[gr.Pods].Reach(ctx, 0) != nil {
		return false
	}
	o, found := s.views[gr.Pods].Get(pod.Namespace, pod.Name)
	return found && o.GetUID() == pod.UID && o.(*corev1.Pod).Spec.NodeName == node
}

// wait waits until a plugin lets a pod go on.
func wait(ctx context.Context, w waiting) *Verdict {
	timer := time.NewTimer(w.For)
	defer timer.Stop()
	select {
	case v := <-w.Wait:
		return v
	case <-timer.C:
		if w.Leave != nil && !w.Leave() {
			return <-w.Wait
		}
		return No(fmt.Sprintf("rejected due to timeout after waiting %v at plugin %v", w.For, w.plugin))
	case <-ctx.Done():
		return Failed(ctx.Err())
	}
}

// prepareNode does what plugins want done before the pod is bound.
func (s *scheduler) prepareNode(ctx context.Context, t *try) error {
	for i := range t.decision.parts {
		p := &t.decision.parts[i]
		if p.PreBind == nil {
			continue
		}
		if err := p.PreBind(ctx, t.decision.Node); err != nil {
			return fmt.Errorf("running PreBind plugin %q: %w", p.Name, err)
		}
	}
	return nil
}

// unbound puts a pod back into the queue whose binding failed.
func (s *scheduler) unbound(ctx context.Context, t *try, err error) {
	s.forget(t, false)
	if ctx.Err() != nil {
		return
	}
	t.decision = &Decision{Seed: t.decision.Seed, Total: t.decision.Total, Err: err}
	t.clear = true
	s.fail(ctx, t, t.Entry)
}
