package deployment

import (
	"fmt"
	"maps"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

// rollbackTo returns the revision to roll back to, from an annotation that old clients write; 0 stands for the previous one.
func rollbackTo(d *appsv1.Deployment) (int64, bool) {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64)
	return n, err == nil
}

// rollBack plans a Deployment with the template of an older set. It always removes the annotation, so that this is done once.
func (l *rollout) rollBack(to int64) error {
	if l.currentSet == nil { // the current template counts as the newest revision, even before it has a set
		rs, err := l.newSet()
		if err != nil {
			return err
		}
		l.currentSet = rs
	}
	sets := l.all()
	d := l.was.DeepCopy()
	delete(d.Annotations, appsv1.DeprecatedRollbackTo)
	l.plan.rollback = d
	const notFound = "DeploymentRollbackRevisionNotFound"
	if to == 0 {
		if _, to = lastTwo(sets); to == 0 {
			l.addEvent("", event{corev1.EventTypeWarning, notFound, "Unable to find last revision."})
			return nil
		}
	}
	for _, rs := range sets {
		if n, ok := revision(rs); !ok || n != to {
			continue
		}
		if sameTemplate(&d.Spec.Template, &rs.Spec.Template) {
			l.addEvent("", event{corev1.EventTypeWarning, "DeploymentRollbackTemplateUnchanged", fmt.Sprintf("The rollback revision contains the same template as current deployment %q", d.Name)})
			return nil
		}
		d.Spec.Template = *rs.Spec.Template.DeepCopy()
		delete(d.Spec.Template.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
		// The annotations are rolled back with the template, because the change cause is one of them.
		maps.DeleteFunc(d.Annotations, func(k, _ string) bool { return !isOwnAnnotation(k) })
		for k, v := range rs.Annotations {
			if !isOwnAnnotation(k) {
				d.Annotations[k] = v
			}
		}
		l.addEvent("", event{corev1.EventTypeNormal, "DeploymentRollback",
			fmt.Sprintf("Rolled back deployment %q to revision %d", d.Name, to)})
		return nil
	}
	l.addEvent("", event{corev1.EventTypeWarning, notFound, "Unable to find the revision to rollback to."})
	return nil
}
