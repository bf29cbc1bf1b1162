package schedule

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/eventseries"
	"proa.dev/schedule/framework"
	"proa.dev/schedule/podqueue"
)

// fail returns a Pod to the queue, records an Event and writes the condition PodScheduled. back is the entry of the Pod
// if it was removed from the queue already.
func (s *scheduler) fail(ctx context.Context, t *attempt, back *podqueue.Entry) {
	t.countSlow()
	d := t.decision
	reason := corev1.PodReasonUnschedulable
	if d.Err != nil {
		reason = corev1.PodReasonSchedulerError
		s.log.WarnContext(ctx, "schedule", "namespace", t.info.Pod.Namespace, "name", t.info.Pod.Name, "err", d.Err)
	}
	s.metrics.failed(t, reason, time.Now())
	message := d.Message()
	s.recent.setFailed(t.info.Pod.UID, message)
	s.recordAttempt(t, message)
	pod := s.current(t.info.Pod)
	if pod == nil {
		if back == nil {
			s.removeFromQueue(t.Entry)
		}
		return
	}
	s.requeue(t, pod, back)
	s.events.Record(pod, eventseries.Note{
		Controller: t.profile.Name, Type: corev1.EventTypeWarning, Reason: "FailedScheduling", Action: "Scheduling",
		Message: truncateMessage(message),
	})
	condition := corev1.PodCondition{
		Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: pod.Generation,
	}
	if next := withStatus(pod, condition, t); next == nil {
		return
	}
	select {
	case s.writes <- struct{}{}:
	case <-ctx.Done():
		return
	}
	s.work.Go(func() {
		defer func() { <-s.writes }()
		s.writeStatus(causedBy(ctx, t.info.Pod), pod, condition, t)
	})
}

// current returns the current state of a Pod if it still needs a node, or nil.
func (s *scheduler) current(pod *corev1.Pod) *corev1.Pod {
	o, found := s.views[gr.Pods].Get(pod.Namespace, pod.Name)
	if !found || o.GetUID() != pod.UID {
		return nil
	}
	now := o.(*corev1.Pod)
	if now.Spec.NodeName != "" || framework.HasEnded(now) {
		return nil
	}
	return now
}

func (s *scheduler) requeue(t *attempt, pod *corev1.Pod, back *podqueue.Entry) {
	d := t.decision
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.wake.Send()
	now := time.Now()
	if back != nil {
		s.queue.ReturnUnbound(back, now)
	} else if d.Err != nil {
		s.queue.Fail(t.Entry, nil, nil, now)
	} else {
		s.queue.Fail(t.Entry, d.RejectedBy, d.PendingPlugins, now)
	}
	if s.queue.Get(pod.UID) == nil {
		return
	}
	switch {
	case t.nominatedNode != "":
		s.nominated.set(s.state, framework.NewPodInfo(pod), t.nominatedNode)
	case t.clearNomination:
		s.nominated.set(s.state, framework.NewPodInfo(pod), "")
	}
}

// withStatus returns the Pod with the condition and the nomination of an attempt, or nil if it has both already.
func withStatus(pod *corev1.Pod, c corev1.PodCondition, t *attempt) *corev1.Pod {
	node := pod.Status.NominatedNodeName
	switch {
	case t.nominatedNode != "":
		node = t.nominatedNode
	case t.clearNomination:
		node = ""
	}
	out := pod.DeepCopy()
	out.Status.NominatedNodeName = node
	if !framework.SetPodCondition(&out.Status, c) && node == pod.Status.NominatedNodeName {
		return nil
	}
	return out
}

// writeStatus writes the condition and the nomination. After a conflict it retries with the current state of the Pod.
func (s *scheduler) writeStatus(ctx context.Context, pod *corev1.Pod, c corev1.PodCondition, t *attempt) {
	uid := pod.UID
	for range 5 {
		next := withStatus(pod, c, t)
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

// maxMessageLength is the maximum length of the message of an Event.
const maxMessageLength = 1024

func truncateMessage(message string) string {
	const more = " ..."
	if len(message) <= maxMessageLength {
		return message
	}
	return message[:maxMessageLength-len(more)] + more
}
