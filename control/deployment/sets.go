package deployment

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// sameTemplate compares templates without the label that names them.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(unnamed(a), unnamed(b))
}

// unnamed shares all but the labels with a template.
func unnamed(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, named := t.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !named {
		return t
	}
	out := *t
	out.Labels = maps.Clone(t.Labels)
	delete(out.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return &out
}

// split finds the set with the template of the Deployment, the oldest if there are several, and the others, oldest first.
func split(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) (fresh *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) {
	sets = slices.SortedFunc(slices.Values(sets), byAge)
	for _, rs := range sets {
		if fresh == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			fresh = rs
		} else {
			old = append(old, rs)
		}
	}
	return fresh, old
}

// byAge puts the older first.
func byAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// size is how many Pods a set is told to have.
func size(rs *appsv1.ReplicaSet) int32 {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return *rs.Spec.Replicas
}

// wanted is how many Pods the Deployment is told to have.
func wanted(d *appsv1.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1
	}
	return *d.Spec.Replicas
}

func sum(sets []*appsv1.ReplicaSet, of func(*appsv1.ReplicaSet) int32) (n int32) {
	for _, rs := range sets {
		n += of(rs)
	}
	return n
}

func available(rs *appsv1.ReplicaSet) int32 { return rs.Status.AvailableReplicas }

// active are the sets that should have Pods.
func active(sets []*appsv1.ReplicaSet) (out []*appsv1.ReplicaSet) {
	for _, rs := range sets {
		if size(rs) > 0 {
			out = append(out, rs)
		}
	}
	return out
}

func isRolling(d *appsv1.Deployment) bool {
	return d.Spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType
}

// limits are by how many Pods a rollout may go above and below what is wanted. If both come out as 0 by rounding,
// one may be missing: more might not be allowed by a quota.
func limits(d *appsv1.Deployment) (surge, unavailable int32) {
	if !isRolling(d) || d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0
	}
	n := int(wanted(d))
	value := func(v *intstr.IntOrString, up bool) int32 {
		scaled, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(v, intstr.FromInt32(0)), n, up)
		if err != nil { // the server does not let it pass
			return 0
		}
		return int32(scaled)
	}
	surge, unavailable = value(d.Spec.Strategy.RollingUpdate.MaxSurge, true), value(d.Spec.Strategy.RollingUpdate.MaxUnavailable, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, wanted(d))
}

// most is how many Pods there may be at any time.
func most(d *appsv1.Deployment) int32 {
	surge, _ := limits(d)
	return wanted(d) + surge
}

// least is how many Pods must be available at any time.
func least(d *appsv1.Deployment) int32 {
	_, unavailable := limits(d)
	return wanted(d) - unavailable
}

// hasDeadline says that lack of progress is to be told.
func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}
