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

	"proa.dev/control/workload"
)

// plan is what one look leads to, in the order in which it is done.
type plan struct {
	// rollback is the Deployment with the template of an older revision; then there is nothing else.
	rollback *appsv1.Deployment
	// create is the set of a template that has none yet, and update the sets that change.
	create *appsv1.ReplicaSet
	update []*appsv1.ReplicaSet
	// remove are sets that the history no longer needs.
	remove []*appsv1.ReplicaSet
	// status is the Deployment with its new status and revision; nil when they are as they should be.
	status *appsv1.Deployment
	// tell is what people should know of, by the name of the set that it is about.
	tell  map[string][]event
	again time.Duration
}

type event struct{ kind, reason, message string }

// look is a Deployment and its sets as they are being thought about. d and what edit returns are copies; all else belongs
// to the views.
type look struct {
	was, d *appsv1.Deployment
	fresh  *appsv1.ReplicaSet // with the present template, or nil
	old    []*appsv1.ReplicaSet
	now    time.Time
	plan   plan
}

// decide says what to do about a Deployment that controls sets. busy are the sets with Pods that have not ended.
func decide(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, busy map[types.UID]bool, now time.Time) (plan, error) {
	l := &look{was: d, d: d.DeepCopy(), now: now, plan: plan{tell: map[string][]event{}}}
	l.fresh, l.old = split(d, sets)
	if err := l.think(busy); err != nil {
		return plan{}, err
	}
	if l.plan.rollback == nil && (!apiequality.Semantic.DeepEqual(d.Status, l.d.Status) || d.Annotations[revisionAnnotation] != l.d.Annotations[revisionAnnotation]) {
		l.plan.status = l.d
	}
	return l.plan, nil
}

func (l *look) think(busy map[types.UID]bool) error {
	d := l.d
	if d.DeletionTimestamp != nil {
		l.revise()
		l.count()
		return nil
	}
	l.pause()
	if !d.Spec.Paused {
		if to, asked := rollbackTo(d); asked {
			return l.rollBack(to)
		}
	}
	l.revise()
	switch {
	case d.Spec.Paused:
		l.resize()
		if _, asked := rollbackTo(d); !asked {
			l.plan.remove = expendable(d, l.old)
		}
		l.count()
	case l.resized() && (isRolling(d) || l.only() != nil): // who recreates ends all but one first
		l.resize()
		l.count()
	case d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType:
		return l.recreate(busy)
	case isRolling(d):
		return l.roll()
	default:
		return fmt.Errorf("unexpected deployment strategy type: %s", d.Spec.Strategy.Type)
	}
	return nil
}

// all are the sets, the newest template last.
func (l *look) all() []*appsv1.ReplicaSet {
	out := append([]*appsv1.ReplicaSet(nil), l.old...)
	if l.fresh != nil {
		out = append(out, l.fresh)
	}
	return out
}

// edit makes a set changeable, and has it stored.
func (l *look) edit(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
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
	if rs == l.fresh {
		l.fresh = out
	}
	for i := range l.old {
		if l.old[i] == rs {
			l.old[i] = out
		}
	}
	return out
}

// revise brings the set of the present template in line with the Deployment: annotations, revision, and how long a Pod
// must be ready.
func (l *look) revise() {
	if l.fresh == nil {
		return
	}
	highest, _ := lastTwo(l.old)
	annotations := annotate(l.d, l.fresh, highest+1)
	if !maps.Equal(annotations, l.fresh.Annotations) || l.fresh.Spec.MinReadySeconds != l.d.Spec.MinReadySeconds {
		rs := l.edit(l.fresh)
		rs.Annotations, rs.Spec.MinReadySeconds = annotations, l.d.Spec.MinReadySeconds
	}
	l.number(l.fresh.Annotations[revisionAnnotation])
	if hasDeadline(l.d) && condition(&l.d.Status, appsv1.DeploymentProgressing) == nil {
		l.progressing(corev1.ConditionTrue, "FoundNewReplicaSet", fmt.Sprintf("Found new replica set %q", l.fresh.Name))
	}
}

// number gives the Deployment its revision.
func (l *look) number(revision string) {
	if l.d.Annotations == nil {
		l.d.Annotations = map[string]string{}
	}
	l.d.Annotations[revisionAnnotation] = revision
}

// begin plans a set for a template that has none.
func (l *look) begin() error {
	rs, err := l.newSet()
	if err != nil {
		return err
	}
	l.plan.create, l.fresh = rs, rs
	if n := size(rs); n > 0 {
		l.scaled(rs, 0, n)
	}
	l.number(rs.Annotations[revisionAnnotation])
	if hasDeadline(l.d) {
		l.progressing(corev1.ConditionTrue, "NewReplicaSetCreated", fmt.Sprintf("Created new replica set %q", rs.Name))
	}
	return nil
}

// newSet makes the set of the present template. Its name comes from the template, so that it cannot be made twice.
func (l *look) newSet() (*appsv1.ReplicaSet, error) {
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
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(0)), MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: *template},
	}
	highest, _ := lastTwo(l.old)
	rs.Annotations = annotate(d, rs, highest+1)
	maps.Copy(rs.Annotations, sizes(d))
	rs.Spec.Replicas = new(l.room(rs))
	return rs, nil
}

func setName(deployment, hash string) string {
	if longest := validation.DNS1123SubdomainMaxLength - 1 - len(hash); len(deployment) > longest {
		deployment = deployment[:longest]
	}
	return deployment + "-" + hash
}

// scale changes the size of a set, and says whether it did. The sizes that the Deployment wants are noted with it.
func (l *look) scale(rs *appsv1.ReplicaSet, to int32) bool {
	from := size(rs)
	if from == to {
		return false
	}
	rs = l.edit(rs)
	rs.Spec.Replicas = &to
	maps.Copy(rs.Annotations, sizes(l.d))
	l.scaled(rs, from, to)
	return true
}

func (l *look) scaled(rs *appsv1.ReplicaSet, from, to int32) {
	way := "down"
	if from < to {
		way = "up"
	}
	l.tell(rs.Name, event{corev1.EventTypeNormal, "ScalingReplicaSet", fmt.Sprintf("Scaled %s replica set %s from %d to %d", way, rs.Name, from, to)})
}

func (l *look) tell(set string, e event) { l.plan.tell[set] = append(l.plan.tell[set], e) }
