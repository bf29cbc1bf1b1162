package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
	"proa.dev/kinds/core"
	"proa.dev/kinds/kind"
)

// ReplicaSets keep a number of equal pods.
func ReplicaSets() *kind.Def {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	return kind.Define(kind.Resource[appsv1.ReplicaSet]{
		Group: "apps", Version: "v1", Kind: "ReplicaSet", Plural: "replicasets",
		Short: []string{"rs"}, Categories: []string{"all"},
		Spec:       func(r *appsv1.ReplicaSet) any { return &r.Spec },
		Status:     func(r *appsv1.ReplicaSet) any { return &r.Status },
		Generation: true,
		Default: func(r *appsv1.ReplicaSet) {
			core.DefaultPodTemplate(&r.Spec.Template)
			fill(&r.Spec.Replicas, 1)
		},
		Prepare:  prepareReplicaSet,
		Validate: validateReplicaSet,
		Warn:     warnReplicaSet,
		Columns: []kind.Column[appsv1.ReplicaSet]{
			kind.NameColumn[appsv1.ReplicaSet](),
			{Name: "Desired", Type: "integer", Description: spec["replicas"], Value: func(r *appsv1.ReplicaSet) any { return int64(count(r.Spec.Replicas)) }},
			{Name: "Current", Type: "integer", Description: status["replicas"], Value: func(r *appsv1.ReplicaSet) any { return int64(r.Status.Replicas) }},
			{Name: "Ready", Type: "integer", Description: status["readyReplicas"], Value: func(r *appsv1.ReplicaSet) any { return int64(r.Status.ReadyReplicas) }},
			kind.AgeColumn[appsv1.ReplicaSet](),
			kind.ContainersColumn(replicaSetContainers),
			kind.ImagesColumn(replicaSetContainers),
			{Name: "Selector", Wide: true, Description: spec["selector"], Value: func(r *appsv1.ReplicaSet) any { return metav1.FormatLabelSelector(r.Spec.Selector) }},
		},
		Subs: []kind.Sub[appsv1.ReplicaSet]{
			{Name: "status", Validate: validateReplicaSetStatus},
			scale(func(r *appsv1.ReplicaSet) scaled {
				return scaled{&r.Spec.Replicas, r.Spec.Selector, r.Status.Replicas}
			}),
		},
	})
}

func replicaSetTemplate(o *appsv1.ReplicaSet) *corev1.PodTemplateSpec {
	if o == nil {
		return nil
	}
	return &o.Spec.Template
}

func replicaSetContainers(r *appsv1.ReplicaSet) []corev1.Container {
	return r.Spec.Template.Spec.Containers
}

func prepareReplicaSet(r, old *appsv1.ReplicaSet) {
	core.DropDisabledTemplateFields(&r.Spec.Template, replicaSetTemplate(old))
}

func warnReplicaSet(r, old *appsv1.ReplicaSet) []string {
	var warnings []string
	if old == nil {
		warnings = warnName(r.Name)
	} else if r.Generation == old.Generation {
		return nil
	}
	return append(warnings, core.PodTemplateWarnings(field.NewPath("spec", "template"), &r.Spec.Template, replicaSetTemplate(old))...)
}

func validateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	s, path := &r.Spec, field.NewPath("spec")
	errs := check.NonNegative(int64(count(s.Replicas)), path.Child("replicas"))
	errs = append(errs, check.NonNegative(int64(s.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validateSelected(s.Selector, &s.Template, replicaSetTemplate(old), path)...)
	if old != nil {
		errs = append(errs, check.Immutable(s.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	s, path := &r.Status, field.NewPath("status")
	errs := nonNegatives(path, []number{
		{"replicas", s.Replicas}, {"fullyLabeledReplicas", s.FullyLabeledReplicas},
		{"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})
	errs = append(errs, check.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, check.NonNegativePtr(s.TerminatingReplicas, path.Child("terminatingReplicas"))...)
	errs = append(errs, atMost(path, s.Replicas, "cannot be greater than status.replicas", []number{
		{"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	return append(errs, atMost(path, s.ReadyReplicas, "cannot be greater than readyReplicas", []number{{"availableReplicas", s.AvailableReplicas}})...)
}
