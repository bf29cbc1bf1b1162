package schedule

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/gr"
)

// fail brings a pod back into the queue and tells people why. back is its entry if the queue has let go of it.
func (s *scheduler) fail(ctx context.Context, t *try, back *Entry) {
	d := t.decision
	reason := corev1.PodReasonUnschedulable
	if d.Err != nil {
		reason = corev1.PodReasonSchedulerError
		s.log.WarnContext(ctx, "schedule", "namespace", t.info.Pod.Namespace, "name", t.info.Pod.Name, "err", d.Err)
	}
	s.metrics.failed(t, reason, time.Now())
	pod := s.current(t.info.Pod)
	if pod == nil {
		if back == nil {
			s.drop(t.Entry)
		}
		return
	}
	s.requeue(t, pod, back)
	message := d.Message()
	s.events.say(pod, t.profile.Name, corev1.EventTypeWarning, "FailedScheduling", "Scheduling", cut(message))
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: pod.Generation,
	}
	if next := told(pod, condition, t); next == nil {
		return
	}
	select {
	case s.writes <- struct{}{}:
	case <-ctx.Done():
		return
	}
	s.work.Go(func() {
		defer func() { <-s.writes }()
		s.tell(ctx, pod, condition, t)
	})
}

// current is the pod as it is now if it still wants a node, or nil.
func (s *scheduler) current(pod *corev1.Pod) *corev1.Pod {
	o, found := s.views[gr.Pods].Get(pod.Namespace, pod.Name)
	if !found || o.GetUID() != pod.UID {
		return nil
	}
	now := o.(*corev1.Pod)
	if now.Spec.NodeName != "" || ended(now) {
		return nil
	}
	return now
}

func (s *scheduler) requeue(t *try, pod *corev1.Pod, back *Entry) {
	d := t.decision
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.signal()
	now := time.Now()
	if back != nil {
		s.queue.Back(back, now)
	} else if d.Err != nil {
		s.queue.Fail(t.Entry, nil, nil, now)
	} else {
		s.queue.Fail(t.Entry, d.By, d.Pending, now)
	}
	if s.queue.Get(pod.UID) == nil {
		return
	}
	switch {
	case t.nominate != "":
		s.nominated.set(s.state, NewPodInfo(pod), t.nominate)
	case t.clear:
		s.nominated.set(s.state, NewPodInfo(pod), "")
	}
}

// told is the pod with the condition and the nomination, or nil if it has both already.
func told(pod *corev1.Pod, c corev1.PodCondition, t *try) *corev1.Pod {
	node := pod.Status.NominatedNodeName
	switch {
	case t.nominate != "":
		node = t.nominate
	case t.clear:
		node = ""
	}
	now := metav1.Now()
	c.LastTransitionTime = now
	i := slices.IndexFunc(pod.Status.Conditions, func(o corev1.PodCondition) bool { return o.Type == c.Type })
	if i >= 0 {
		old := pod.Status.Conditions[i]
		if old.Status == c.Status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		c.LastProbeTime = old.LastProbeTime
		if old == c && node == pod.Status.NominatedNodeName {
			return nil
		}
	}
	out := pod.DeepCopy()
	out.Status.NominatedNodeName = node
	if i >= 0 {
		out.Status.Conditions[i] = c
	} else {
		out.Status.Conditions = append(out.Status.Conditions, c)
	}
	return out
}

// tell writes the condition. Who writes to the pod at the same time comes first; then there is another look.
func (s *scheduler) tell(ctx context.Context, pod *corev1.Pod, c corev1.PodCondition, t *try) {
	uid := pod.UID
	for range 5 {
		next := told(pod, c, t)
		if next == nil {
			return
		}
		_, err := s.writer.Update(ctx, gr.Pods, next, "status")
		if err == nil || ctx.Err() != nil || apierrors.IsNotFound(err) {
			return
		}
		if !apierrors.IsConflict(err) {
			s.log.WarnContext(ctx, "write the condition of a pod", "namespace", pod.Namespace, "name", pod.Name, "err", err)
			return
		}
		if err := s.views[gr.Pods].Reach(ctx, 0); err != nil {
			return
		}
		if pod = s.current(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: uid}}); pod == nil {
			return
		}
	}
}

// longestNote is the most that fits into an Event.
const longestNote = 1024

func cut(message string) string {
	const more = " ..."
	if len(message) <= longestNote {
		return message
	}
	return message[:longestNote-len(more)] + more
}
