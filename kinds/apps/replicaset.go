package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
)

// ReplicaSets keep a number of equal pods.
func ReplicaSets() *kind.Def {
	spec, status := appsv1.ReplicaSetSpec{}.SwaggerDoc(), appsv1.ReplicaSetStatus{}.SwaggerDoc()
	return kind.Define(kind.Resource[appsv1.ReplicaSet]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, Plural: "replicasets",
			Short: []string{"rs"}, Categories: []string{"all"},
			Generation: true,
		},
		Spec:   func(r *appsv1.ReplicaSet) any { return &r.Spec },
		Status: func(r *appsv1.ReplicaSet) any { return &r.Status },
		Default: func(r *appsv1.ReplicaSet) {
			podspec.DefaultTemplate(&r.Spec.Template)
			defaulting.IfNil(&r.Spec.Replicas, 1)
		},
		Prepare:  prepareReplicaSet,
		Validate: validateReplicaSet,
		Warn:     warnReplicaSet,
		Ready: func(r *appsv1.ReplicaSet) bool {
			s, want := &r.Status, ptr.Deref(r.Spec.Replicas, 1)
			return s.ObservedGeneration == r.Generation && s.Replicas == want && s.AvailableReplicas == want
		},
		Columns: []kind.Column[appsv1.ReplicaSet]{
			kind.NameColumn[appsv1.ReplicaSet](),
			{Name: "Desired", Type: "integer", Description: spec["replicas"],
				Value: func(r *appsv1.ReplicaSet) any { return int64(ptr.Deref(r.Spec.Replicas, 0)) }},
			{Name: "Current", Type: "integer", Description: status["replicas"],
				Value: func(r *appsv1.ReplicaSet) any { return int64(r.Status.Replicas) }},
			{Name: "Ready", Type: "integer", Description: status["readyReplicas"],
				Value: func(r *appsv1.ReplicaSet) any { return int64(r.Status.ReadyReplicas) }},
			kind.AgeColumn[appsv1.ReplicaSet](),
			kind.ContainersColumn(replicaSetContainers),
			kind.ImagesColumn(replicaSetContainers),
			{Name: "Selector", Wide: true, Description: spec["selector"],
				Value: func(r *appsv1.ReplicaSet) any { return metav1.FormatLabelSelector(r.Spec.Selector) }},
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
	podspec.DropDisabledTemplateFields(&r.Spec.Template, replicaSetTemplate(old))
}

func warnReplicaSet(r, old *appsv1.ReplicaSet) []string {
	var warnings []string
	if old == nil {
		warnings = podspec.NameWarnings(r.Name)
	} else if r.Generation == old.Generation {
		return nil
	}
	return append(warnings, podspec.TemplateWarnings(field.NewPath("spec", "template"), &r.Spec.Template, replicaSetTemplate(old))...)
}

func validateReplicaSet(r, old *appsv1.ReplicaSet) field.ErrorList {
	s, path := &r.Spec, field.NewPath("spec")
	errs := check.NonNegative(int64(ptr.Deref(s.Replicas, 0)), path.Child("replicas"))
	errs = append(errs, check.NonNegative(int64(s.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, validateSelected(s.Selector, &s.Template, replicaSetTemplate(old), path)...)
	if old != nil {
		errs = append(errs, check.Immutable(s.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

func validateReplicaSetStatus(r, _ *appsv1.ReplicaSet) field.ErrorList {
	s, path := &r.Status, field.NewPath("status")
	errs := validateNonNegative(path, []namedCount{
		{"replicas", s.Replicas}, {"fullyLabeledReplicas", s.FullyLabeledReplicas},
		{"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})
	errs = append(errs, check.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, check.NonNegativePtr(s.TerminatingReplicas, path.Child("terminatingReplicas"))...)
	errs = append(errs, validateAtMost(path, s.Replicas, "cannot be greater than status.replicas", []namedCount{
		{"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	return append(errs, validateAtMost(path, s.ReadyReplicas, "cannot be greater than readyReplicas",
		[]namedCount{{"availableReplicas", s.AvailableReplicas}})...)
}
