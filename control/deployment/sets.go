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

// sameTemplate compares templates without the label pod-template-hash.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	return apiequality.Semantic.DeepEqual(withoutHashLabel(a), withoutHashLabel(b))
}

// withoutHashLabel returns a shallow copy of a template without the label pod-template-hash.
func withoutHashLabel(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	if _, named := t.Labels[appsv1.DefaultDeploymentUniqueLabelKey]; !named {
		return t
	}
	out := *t
	out.Labels = maps.Clone(t.Labels)
	delete(out.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return &out
}

// split returns the set with the template of the Deployment, the oldest if there are several, and the others, oldest first.
func split(d *appsv1.Deployment, sets []*appsv1.ReplicaSet) (current *appsv1.ReplicaSet, old []*appsv1.ReplicaSet) {
	sets = slices.SortedFunc(slices.Values(sets), compareAge)
	for _, rs := range sets {
		if current == nil && sameTemplate(&rs.Spec.Template, &d.Spec.Template) {
			current = rs
		} else {
			old = append(old, rs)
		}
	}
	return current, old
}

// compareAge puts the older first.
func compareAge(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
}

// size returns the spec.replicas of a set.
func size(rs *appsv1.ReplicaSet) int32 {
	if rs.Spec.Replicas == nil {
		return 1
	}
	return *rs.Spec.Replicas
}

// replicas returns the spec.replicas of a Deployment.
func replicas(d *appsv1.Deployment) int32 {
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

// keptAvailable returns how many available Pods a set keeps. The status may be older than the size: of a set that was just scaled
// down, the Pods that end now must not be counted, or the next step would scale down what must stay available.
func keptAvailable(rs *appsv1.ReplicaSet) int32 { return min(available(rs), size(rs)) }

// activeSets returns the sets that should have Pods.
func activeSets(sets []*appsv1.ReplicaSet) (out []*appsv1.ReplicaSet) {
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

// limits returns maxSurge and maxUnavailable of a rollout as numbers. If both are 0 by rounding, one Pod may be unavailable,
// because a quota might not allow an additional one.
func limits(d *appsv1.Deployment) (surge, unavailable int32) {
	if !isRolling(d) || d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0
	}
	n := int(replicas(d))
	value := func(v *intstr.IntOrString, up bool) int32 {
		scaled, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(v, intstr.FromInt32(0)), n, up)
		if err != nil { // validation rejects such values
			return 0
		}
		return int32(scaled)
	}
	surge, unavailable = value(d.Spec.Strategy.RollingUpdate.MaxSurge, true), value(d.Spec.Strategy.RollingUpdate.MaxUnavailable, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, replicas(d))
}

// maxPods returns the largest number of Pods that a rollout may have.
func maxPods(d *appsv1.Deployment) int32 {
	surge, _ := limits(d)
	return replicas(d) + surge
}

// minAvailable returns the smallest number of Pods that must be available during a rollout.
func minAvailable(d *appsv1.Deployment) int32 {
	_, unavailable := limits(d)
	return replicas(d) - unavailable
}

// hasDeadline reports whether the Deployment has a progress deadline.
func hasDeadline(d *appsv1.Deployment) bool {
	return d.Spec.ProgressDeadlineSeconds != nil && *d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}
