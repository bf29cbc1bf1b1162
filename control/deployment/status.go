package deployment

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of the condition Progressing that are used in several places.
const (
	reasonDone     = "NewReplicaSetAvailable"
	reasonTimedOut = "ProgressDeadlineExceeded"
	reasonPaused   = "DeploymentPaused"
	reasonFailed   = "ReplicaSetCreateError"
)

func condition(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == t {
			return &s.Conditions[i]
		}
	}
	return nil
}

// setCondition stores a condition if its status or reason has changed.
func setCondition(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if now := condition(s, c.Type); now != nil {
		if now.Status == c.Status && now.Reason == c.Reason {
			return
		}
		if now.Status == c.Status {
			c.LastTransitionTime = now.LastTransitionTime
		}
	}
	removeCondition(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func removeCondition(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
}

func (l *rollout) newCondition(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason,
	message string) appsv1.DeploymentCondition {
	now := metav1.NewTime(l.now)
	return appsv1.DeploymentCondition{Type: t, Status: status, Reason: reason, Message: message, LastUpdateTime: now,
		LastTransitionTime: now}
}

func (l *rollout) setProgressing(status corev1.ConditionStatus, reason, message string) {
	setCondition(&l.d.Status, l.newCondition(appsv1.DeploymentProgressing, status, reason, message))
}

// updatePaused records in the condition Progressing when a Deployment is paused and resumed: the time between does not count towards
// the deadline.
func (l *rollout) updatePaused() {
	if !hasDeadline(l.d) {
		return
	}
	now := condition(&l.d.Status, appsv1.DeploymentProgressing)
	if now != nil && now.Reason == reasonTimedOut {
		return
	}
	paused := now != nil && now.Reason == reasonPaused
	switch {
	case l.d.Spec.Paused && !paused:
		l.setProgressing(corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
	case !l.d.Spec.Paused && paused:
		l.setProgressing(corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed")
	}
}

// updateStatus sets the parts of the status that do not depend on the progress of a rollout.
func (l *rollout) updateStatus() {
	sets := l.all()
	ready := sum(sets, func(rs *appsv1.ReplicaSet) int32 { return rs.Status.ReadyReplicas })
	have := func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas }
	s := appsv1.DeploymentStatus{
		ObservedGeneration: l.d.Generation, Replicas: sum(sets, have), ReadyReplicas: ready, AvailableReplicas: sum(sets, available),
		UnavailableReplicas: max(0, sum(sets, size)-sum(sets, available)), TerminatingReplicas: terminating(sets),
		CollisionCount: l.d.Status.CollisionCount, Conditions: l.d.Status.Conditions,
	}
	if l.currentSet != nil {
		s.UpdatedReplicas = have(l.currentSet)
	}
	if s.AvailableReplicas >= minAvailable(l.d) {
		setCondition(&s, l.newCondition(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable",
			"Deployment has minimum availability."))
	} else {
		setCondition(&s, l.newCondition(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable",
			"Deployment does not have minimum availability."))
	}
	l.d.Status = s
}

// terminating returns the number of terminating Pods; nil if the status of one set does not have it.
func terminating(sets []*appsv1.ReplicaSet) *int32 {
	n := int32(0)
	for _, rs := range sets {
		switch t := rs.Status.TerminatingReplicas; {
		case t != nil:
			n += *t
		case rs.Status.ObservedGeneration != 0:
			return nil
		}
	}
	return &n
}

// isComplete reports whether all Pods have the current template and are available.
func isComplete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	n := replicas(d)
	return s.UpdatedReplicas == n && s.Replicas == n && s.AvailableReplicas == n && s.ObservedGeneration >= d.Generation
}

// hasProgressed reports whether a rollout has progressed.
func hasProgressed(was, is *appsv1.DeploymentStatus) bool {
	return is.UpdatedReplicas > was.UpdatedReplicas || is.Replicas-is.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		is.ReadyReplicas > was.ReadyReplicas || is.AvailableReplicas > was.AvailableReplicas
}

// updateProgress sets the status during a rollout, with the condition Progressing, and plans the next reconcile for the deadline.
func (l *rollout) updateProgress() {
	was := l.d.Status // including the changes of this reconcile so far
	was.Conditions = slices.Clone(was.Conditions)
	l.updateStatus()
	d, s := l.d, &l.d.Status
	if !hasDeadline(d) {
		removeCondition(s, appsv1.DeploymentProgressing)
	}
	before := condition(&was, appsv1.DeploymentProgressing)
	wasDone := s.Replicas == s.UpdatedReplicas && before != nil && before.Reason == reasonDone
	if hasDeadline(d) && !wasDone {
		l.updateProgressing(&was, before)
	}
	l.updateReplicaFailure()
	l.plan.again = l.timeUntilDeadline(condition(s, appsv1.DeploymentProgressing))
}

// updateProgressing sets the condition Progressing.
func (l *rollout) updateProgressing(was *appsv1.DeploymentStatus, before *appsv1.DeploymentCondition) {
	what := fmt.Sprintf("Deployment %q", l.d.Name)
	if l.currentSet != nil {
		what = fmt.Sprintf("ReplicaSet %q", l.currentSet.Name)
	}
	s := &l.d.Status
	switch {
	case isComplete(l.d, s):
		l.setProgressing(corev1.ConditionTrue, reasonDone, what+" has successfully progressed.")
	case hasProgressed(was, s):
		c := l.newCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", what+" is progressing.")
		if before != nil && before.Status == corev1.ConditionTrue {
			c.LastTransitionTime = before.LastTransitionTime
		}
		removeCondition(s, appsv1.DeploymentProgressing) // so that setCondition stores it even with the same reason: it moves the deadline
		setCondition(s, c)
	case l.timedOut(condition(s, appsv1.DeploymentProgressing)):
		l.setProgressing(corev1.ConditionFalse, reasonTimedOut, what+" has timed out progressing.")
	}
}

func (l *rollout) deadlineOf(c *appsv1.DeploymentCondition) time.Time {
	return c.LastUpdateTime.Add(time.Duration(*l.d.Spec.ProgressDeadlineSeconds) * time.Second)
}

func (l *rollout) timedOut(c *appsv1.DeploymentCondition) bool {
	switch {
	case c == nil || c.Reason == reasonDone: // of an earlier rollout
		return false
	case c.Reason == reasonTimedOut:
		return true
	}
	return l.deadlineOf(c).Before(l.now)
}

// timeUntilDeadline returns the time until the progress deadline; 0 if the outcome is known already. It adds a second, because times
// in conditions are whole seconds.
func (l *rollout) timeUntilDeadline(c *appsv1.DeploymentCondition) time.Duration {
	if !hasDeadline(l.d) || c == nil || c.Reason == reasonTimedOut || c.Reason == reasonDone || isComplete(l.d, &l.d.Status) {
		return 0
	}
	return max(0, l.deadlineOf(c).Sub(l.now)) + time.Second
}

// updateReplicaFailure copies the condition ReplicaFailure of a set, that of the newest set first.
func (l *rollout) updateReplicaFailure() {
	sets := l.old
	if l.currentSet != nil {
		sets = append([]*appsv1.ReplicaSet{l.currentSet}, l.old...)
	}
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				setCondition(&l.d.Status, appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
				})
				return
			}
		}
	}
	removeCondition(&l.d.Status, appsv1.DeploymentReplicaFailure)
}

// withCreateError returns the Deployment with a condition that its set could not be created.
func withCreateError(d *appsv1.Deployment, message string, now time.Time) *appsv1.Deployment {
	l := &rollout{d: d.DeepCopy(), now: now}
	l.setProgressing(corev1.ConditionFalse, reasonFailed, message)
	return l.d
}

// withCollision returns the Deployment with a higher collision count, which changes the name of its next set.
func withCollision(d *appsv1.Deployment) *appsv1.Deployment {
	out := d.DeepCopy()
	n := int32(1)
	if out.Status.CollisionCount != nil {
		n = *out.Status.CollisionCount + 1
	}
	out.Status.CollisionCount = &n
	return out
}
