package deployment

import (
	"fmt"
	"maps"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"proa.dev/control/lib/workload"
)

// plan is what one reconcile does, in this order.
type plan struct {
	// rollback is the Deployment with the template of an older revision; if it is not nil, nothing else is done.
	rollback *appsv1.Deployment
	// create is the set to create for a template that has none, and update the sets that change.
	create *appsv1.ReplicaSet
	update []*appsv1.ReplicaSet
	// remove are the sets beyond the revision history limit.
	remove []*appsv1.ReplicaSet
	// status is the Deployment with its new status and revision; nil when neither changes.
	status *appsv1.Deployment
	// events has the Events to record, by the name of the set whose write they are about.
	events map[string][]event
	again  time.Duration
}

type event struct{ kind, reason, message string }

// rollout is the working state of a decision: a Deployment and its sets. d and the sets that edit returns are copies; all other
// objects belong to the views.
type rollout struct {
	was, d     *appsv1.Deployment
	currentSet *appsv1.ReplicaSet // the set with the current template, or nil
	old        []*appsv1.ReplicaSet
	now        time.Time
	plan       plan
}

// decide returns what to do about a Deployment that controls sets. busy are the sets with Pods that have not ended.
func decide(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, busy map[types.UID]bool, now time.Time) (plan, error) {
	l := &rollout{was: d, d: d.DeepCopy(), now: now, plan: plan{events: map[string][]event{}}}
	l.currentSet, l.old = split(d, sets)
	if err := l.decide(busy); err != nil {
		return plan{}, err
	}
	if l.plan.rollback == nil && (!apiequality.Semantic.DeepEqual(d.Status, l.d.Status) ||
		d.Annotations[revisionAnnotation] != l.d.Annotations[revisionAnnotation]) {
		l.plan.status = l.d
	}
	return l.plan, nil
}

// decide makes the plan.
func (l *rollout) decide(busy map[types.UID]bool) error {
	d := l.d
	if d.DeletionTimestamp != nil {
		l.updateCurrentSet()
		l.updateStatus()
		return nil
	}
	l.updatePaused()
	if !d.Spec.Paused {
		if to, asked := rollbackTo(d); asked {
			return l.rollBack(to)
		}
	}
	l.updateCurrentSet()
	switch {
	case d.Spec.Paused:
		l.scaleProportionally()
		if _, asked := rollbackTo(d); !asked {
			l.plan.remove = setsToDelete(d, l.old)
		}
		l.updateStatus()
	case l.wasScaled() && (isRolling(d) || l.onlyActiveSet() != nil): // with Recreate all sets but one are scaled down first
		l.scaleProportionally()
		l.updateStatus()
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return l.recreate(busy)
	case isRolling(d):
		return l.roll()
	default:
		return fmt.Errorf("unexpected deployment strategy type: %s", d.Spec.Strategy.Type)
	}
	return nil
}

// all returns the sets, the one with the current template last.
func (l *rollout) all() []*appsv1.ReplicaSet {
	out := append([]*appsv1.ReplicaSet(nil), l.old...)
	if l.currentSet != nil {
		out = append(out, l.currentSet)
	}
	return out
}

// edit returns a copy of a set that may be changed, and adds it to the updates of the plan.
func (l *rollout) edit(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	if rs == l.plan.create {
		return rs
	}
	for _, changed := range l.plan.update {
		if changed == rs {
			return rs
		}
	}
	out := rs.DeepCopy()
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	l.plan.update = append(l.plan.update, out)
	if rs == l.currentSet {
		l.currentSet = out
	}
	for i := range l.old {
		if l.old[i] == rs {
			l.old[i] = out
		}
	}
	return out
}

// updateCurrentSet updates the annotations, revision and minReadySeconds of the set with the current template.
func (l *rollout) updateCurrentSet() {
	if l.currentSet == nil {
		return
	}
	highest, _ := lastTwo(l.old)
	annotations := annotate(l.d, l.currentSet, highest+1)
	if !maps.Equal(annotations, l.currentSet.Annotations) || l.currentSet.Spec.MinReadySeconds != l.d.Spec.MinReadySeconds {
		rs := l.edit(l.currentSet)
		rs.Annotations, rs.Spec.MinReadySeconds = annotations, l.d.Spec.MinReadySeconds
	}
	l.setRevision(l.currentSet.Annotations[revisionAnnotation])
	if hasDeadline(l.d) && condition(&l.d.Status, appsv1.DeploymentProgressing) == nil {
		l.setProgressing(corev1.ConditionTrue, "FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", l.currentSet.Name))
	}
}

// setRevision sets the revision annotation of the Deployment.
func (l *rollout) setRevision(revision string) {
	if l.d.Annotations == nil {
		l.d.Annotations = map[string]string{}
	}
	l.d.Annotations[revisionAnnotation] = revision
}

// createSet plans the creation of the set for a template that has none.
func (l *rollout) createSet() error {
	rs, err := l.newSet()
	if err != nil {
		return err
	}
	l.plan.create, l.currentSet = rs, rs
	if n := size(rs); n > 0 {
		l.recordScaling(rs, 0, n)
	}
	l.setRevision(rs.Annotations[revisionAnnotation])
	if hasDeadline(l.d) {
		l.setProgressing(corev1.ConditionTrue, "NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", rs.Name))
	}
	return nil
}

// newSet returns a set with the current template. Its name contains the hash of the template, so that it cannot be created
// twice.
func (l *rollout) newSet() (*appsv1.ReplicaSet, error) {
	d := l.d
	hash, err := workload.Hash(&d.Spec.Template, d.Status.CollisionCount)
	if err != nil {
		return nil, err
	}
	const key = appsv1.DefaultDeploymentUniqueLabelKey
	template, selector := d.Spec.Template.DeepCopy(), d.Spec.Selector.DeepCopy()
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	template.Labels[key] = hash
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[key] = hash
	rs := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: setName(d.Name, hash), Namespace: d.Namespace, Labels: maps.Clone(template.Labels),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, gvk())},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector,
			Template: *template},
	}
	highest, _ := lastTwo(l.old)
	rs.Annotations = annotate(d, rs, highest+1)
	maps.Copy(rs.Annotations, sizeAnnotations(d))
	rs.Spec.Replicas = new(l.currentSetSize(rs))
	return rs, nil
}

func setName(deployment, hash string) string {
	if maxLength := validation.DNS1123SubdomainMaxLength - 1 - len(hash); len(deployment) > maxLength {
		deployment = deployment[:maxLength]
	}
	return deployment + "-" + hash
}

// scale changes the replicas of a set, and reports whether they were different. It also updates the size annotations.
func (l *rollout) scale(rs *appsv1.ReplicaSet, to int32) bool {
	from := size(rs)
	if from == to {
		return false
	}
	rs = l.edit(rs)
	rs.Spec.Replicas = &to
	maps.Copy(rs.Annotations, sizeAnnotations(l.d))
	l.recordScaling(rs, from, to)
	return true
}

func (l *rollout) recordScaling(rs *appsv1.ReplicaSet, from, to int32) {
	direction := "down"
	if from < to {
		direction = "up"
	}
	l.addEvent(rs.Name, event{corev1.EventTypeNormal, "ScalingReplicaSet",
		fmt.Sprintf("Scaled %s replica set %s from %d to %d", direction, rs.Name, from, to)})
}

func (l *rollout) addEvent(set string, e event) { l.plan.events[set] = append(l.plan.events[set], e) }
