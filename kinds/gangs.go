package kinds

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/scheduling"
)

// WithGangs adds the kinds of gang scheduling to those of AllWith, and lets pods name their group. They are of a beta
// that is disabled by default.
func WithGangs(all []*kind.Def) []*kind.Def {
	for _, d := range all {
		if podSpec(d.New()) == nil {
			continue
		}
		prepare := d.Prepare
		d.Prepare = func(obj, old kind.Object) {
			group := podSpec(obj).SchedulingGroup
			prepare(obj, old)
			spec := podSpec(obj)
			if group == nil || spec.SchedulingGroup != nil {
				return
			}
			if spec.SchedulingGroup = group; d.Generation && old != nil && obj.GetGeneration() == old.GetGeneration() {
				obj.SetGeneration(old.GetGeneration() + 1) // Prepare did not count the group
			}
		}
	}
	return append(all, scheduling.Gangs()...)
}

// podSpec returns the pod spec of an object; nil if it has none.
func podSpec(o kind.Object) *corev1.PodSpec {
	switch o := o.(type) {
	case *corev1.Pod:
		return &o.Spec
	case *corev1.PodTemplate:
		return &o.Template.Spec
	case *corev1.ReplicationController:
		if o.Spec.Template == nil {
			return &corev1.PodSpec{}
		}
		return &o.Spec.Template.Spec
	case *appsv1.ReplicaSet:
		return &o.Spec.Template.Spec
	case *appsv1.Deployment:
		return &o.Spec.Template.Spec
	case *appsv1.StatefulSet:
		return &o.Spec.Template.Spec
	case *appsv1.DaemonSet:
		return &o.Spec.Template.Spec
	case *batchv1.Job:
		return &o.Spec.Template.Spec
	case *batchv1.CronJob:
		return &o.Spec.JobTemplate.Spec.Template.Spec
	}
	return nil
}
