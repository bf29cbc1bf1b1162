package deployment

import (
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The reasons of the condition Progressing that are spoken of more than once.
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

// set stores a condition unless it says nothing new.
func set(s *appsv1.DeploymentStatus, c appsv1.DeploymentCondition) {
	if now := condition(s, c.Type); now != nil {
		if now.Status == c.Status && now.Reason == c.Reason {
			return
		}
		if now.Status == c.Status {
			c.LastTransitionTime = now.LastTransitionTime
		}
	}
	unset(s, c.Type)
	s.Conditions = append(s.Conditions, c)
}

func unset(s *appsv1.DeploymentStatus, t appsv1.DeploymentConditionType) {
	s.Conditions = slices.DeleteFunc(s.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == t })
}

func (l *look) make(t appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) appsv1.DeploymentCondition {
	now := metav1.NewTime(l.now)
	return appsv1.DeploymentCondition{Type: t, Status: status, Reason: reason, Message: message, LastUpdateTime: now, LastTransitionTime: now}
}

func (l *look) progressing(status corev1.ConditionStatus, reason, message string) {
	set(&l.d.Status, l.make(appsv1.DeploymentProgressing, status, reason, message))
}

// pause notes when a Deployment is paused and when it goes on: the time between does not count towards the deadline.
func (l *look) pause() {
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
		l.progressing(corev1.ConditionUnknown, reasonPaused, "Deployment is paused")
	case !l.d.Spec.Paused && paused:
		l.progressing(corev1.ConditionUnknown, "DeploymentResumed", "Deployment is resumed")
	}
}

// count is the status as far as it does not depend on a rollout.
func (l *look) count() {
	sets := l.all()
	ready := sum(sets, func(rs *appsv1.ReplicaSet) int32 { return rs.Status.ReadyReplicas })
	have := func(rs *appsv1.ReplicaSet) int32 { return rs.Status.Replicas }
	s := appsv1.DeploymentStatus{
		ObservedGeneration: l.d.Generation, Replicas: sum(sets, have), ReadyReplicas: ready, AvailableReplicas: sum(sets, available),
		UnavailableReplicas: max(0, sum(sets, size)-sum(sets, available)), TerminatingReplicas: terminating(sets),
		CollisionCount: l.d.Status.CollisionCount, Conditions: l.d.Status.Conditions,
	}
	if l.fresh != nil {
		s.UpdatedReplicas = have(l.fresh)
	}
	if s.AvailableReplicas >= least(l.d) {
		set(&s, l.make(appsv1.DeploymentAvailable, corev1.ConditionTrue, "MinimumReplicasAvailable", "Deployment has minimum availability."))
	} else {
		set(&s, l.make(appsv1.DeploymentAvailable, corev1.ConditionFalse, "MinimumReplicasUnavailable", "Deployment does not have minimum availability."))
	}
	l.d.Status = s
}

// terminating is unknown as soon as one set does not tell.
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

// complete says that all Pods are of the present template, and available.
func complete(d *appsv1.Deployment, s *appsv1.DeploymentStatus) bool {
	n := wanted(d)
	return s.UpdatedReplicas == n && s.Replicas == n && s.AvailableReplicas == n && s.ObservedGeneration >= d.Generation
}

// moved says that a rollout has come closer to its end.
func moved(was, is *appsv1.DeploymentStatus) bool {
	return is.UpdatedReplicas > was.UpdatedReplicas || is.Replicas-is.UpdatedReplicas < was.Replicas-was.UpdatedReplicas ||
		is.ReadyReplicas > was.ReadyReplicas || is.AvailableReplicas > was.AvailableReplicas
}

// progress is the status in a rollout: it tells whether there is progress, and when there should have been.
func (l *look) progress() {
	was := l.d.Status // with what this look has noted so far
	was.Conditions = slices.Clone(was.Conditions)
	l.count()
	d, s := l.d, &l.d.Status
	if !hasDeadline(d) {
		unset(s, appsv1.DeploymentProgressing)
	}
	before := condition(&was, appsv1.DeploymentProgressing)
	rested := s.Replicas == s.UpdatedReplicas && before != nil && before.Reason == reasonDone
	if hasDeadline(d) && !rested {
		l.judge(&was, before)
	}
	l.failures()
	l.plan.again = l.deadline(condition(s, appsv1.DeploymentProgressing))
}

// judge sets the condition Progressing.
func (l *look) judge(was *appsv1.DeploymentStatus, before *appsv1.DeploymentCondition) {
	what := fmt.Sprintf("Deployment %q", l.d.Name)
	if l.fresh != nil {
		what = fmt.Sprintf("ReplicaSet %q", l.fresh.Name)
	}
	s := &l.d.Status
	switch {
	case complete(l.d, s):
		l.progressing(corev1.ConditionTrue, reasonDone, what+" has successfully progressed.")
	case moved(was, s):
		c := l.make(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", what+" is progressing.")
		if before != nil && before.Status == corev1.ConditionTrue {
			c.LastTransitionTime = before.LastTransitionTime
		}
		unset(s, appsv1.DeploymentProgressing) // the same reason again is news here: it moves the deadline
		set(s, c)
	case l.timedOut(condition(s, appsv1.DeploymentProgressing)):
		l.progressing(corev1.ConditionFalse, reasonTimedOut, what+" has timed out progressing.")
	}
}

func (l *look) due(c *appsv1.DeploymentCondition) time.Time {
	return c.LastUpdateTime.Add(time.Duration(*l.d.Spec.ProgressDeadlineSeconds) * time.Second)
}

func (l *look) timedOut(c *appsv1.DeploymentCondition) bool {
	switch {
	case c == nil || c.Reason == reasonDone: // of a rollout before
		return false
	case c.Reason == reasonTimedOut:
		return true
	}
	return l.due(c).Before(l.now)
}

// deadline is when to look whether there has been progress; 0 if it is known already. Times in conditions are whole
// seconds, so it is a second later.
func (l *look) deadline(c *appsv1.DeploymentCondition) time.Duration {
	if !hasDeadline(l.d) || c == nil || c.Reason == reasonTimedOut || c.Reason == reasonDone || complete(l.d, &l.d.Status) {
		return 0
	}
	return max(0, l.due(c).Sub(l.now)) + time.Second
}

// failures shows what keeps a set from having its Pods, the newest set before the others.
func (l *look) failures() {
	sets := l.old
	if l.fresh != nil {
		sets = append([]*appsv1.ReplicaSet{l.fresh}, l.old...)
	}
	for _, rs := range sets {
		for _, c := range rs.Status.Conditions {
			if c.Type == appsv1.ReplicaSetReplicaFailure {
				set(&l.d.Status, appsv1.DeploymentCondition{
					Type: appsv1.DeploymentReplicaFailure, Status: c.Status, Reason: c.Reason, Message: c.Message,
					LastTransitionTime: c.LastTransitionTime, LastUpdateTime: c.LastTransitionTime,
				})
				return
			}
		}
	}
	unset(&l.d.Status, appsv1.DeploymentReplicaFailure)
}

// failed is a Deployment whose set could not be made.
func failed(d *appsv1.Deployment, message string, now time.Time) *appsv1.Deployment {
	l := &look{d: d.DeepCopy(), now: now}
	l.progressing(corev1.ConditionFalse, reasonFailed, message)
	return l.d
}

// collided is a Deployment that will name its set otherwise.
func collided(d *appsv1.Deployment) *appsv1.Deployment {
	out := d.DeepCopy()
	n := int32(1)
	if out.Status.CollisionCount != nil {
		n = *out.Status.CollisionCount + 1
	}
	out.Status.CollisionCount = &n
	return out
}
