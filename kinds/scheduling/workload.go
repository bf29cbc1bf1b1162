package scheduling

import (
	"fmt"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// Workloads list the groups of pods of an application; its controller creates PodGroups from the templates.
func Workloads() *kind.Def {
	type workload = schedulingv1beta1.Workload
	return kind.Define(kind.Resource[workload]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "scheduling.k8s.io", Version: "v1beta1", Kind: "Workload"},
			Plural:           "workloads", Scope: kind.Namespaced,
			Older:                   kind.SameLayout("v1alpha3"),
			Generation:              true,
			RequiresResourceVersion: true,
		},
		Spec: func(w *workload) any { return &w.Spec },
		Default: func(w *workload) {
			for i := range w.Spec.PodGroupTemplates {
				if t := &w.Spec.PodGroupTemplates[i]; t.DisruptionMode == nil {
					t.DisruptionMode = &schedulingv1beta1.DisruptionMode{Single: &schedulingv1beta1.SingleDisruptionMode{}}
				}
			}
		},
		Prepare:  dropDisabledOfWorkload,
		Validate: validateWorkload,
		Columns:  []kind.Column[workload]{kind.NameColumn[workload](), kind.AgeColumn[workload]()},
	})
}

// dropDisabledOfWorkload drops the fields of disabled alpha features. Templates are immutable, so stored ones keep
// theirs.
func dropDisabledOfWorkload(w, old *schedulingv1beta1.Workload) {
	if old != nil {
		return
	}
	w.Spec.CompositePodGroupTemplates = nil
	for i := range w.Spec.PodGroupTemplates {
		t := &w.Spec.PodGroupTemplates[i]
		t.SchedulingConstraints, t.ResourceClaims, t.PreemptionPolicy = nil, nil, nil
	}
}

func validateWorkload(w, old *schedulingv1beta1.Workload) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	templates := spec.Child("podGroupTemplates")
	if old != nil {
		errs = append(errs, check.Immutable(w.Spec.ControllerRef, old.Spec.ControllerRef, spec.Child("controllerRef"))...)
	} else {
		errs = validateControllerRef(w.Spec.ControllerRef, spec.Child("controllerRef"))
	}
	if n := len(w.Spec.PodGroupTemplates); n > schedulingv1beta1.WorkloadMaxPodGroupTemplates {
		return append(errs, field.TooMany(templates, n, schedulingv1beta1.WorkloadMaxPodGroupTemplates))
	} else if n == 0 && len(w.Spec.CompositePodGroupTemplates) == 0 {
		return append(errs, field.Invalid(spec, "", "must specify one of: `compositePodGroupTemplates`, `podGroupTemplates`"))
	}
	was := map[string]*schedulingv1beta1.PodGroupTemplate{}
	if old != nil {
		for i := range old.Spec.PodGroupTemplates {
			was[old.Spec.PodGroupTemplates[i].Name] = &old.Spec.PodGroupTemplates[i]
		}
		if len(was) != len(w.Spec.PodGroupTemplates) {
			return append(errs, check.ImmutableError(templates))
		}
	}
	seen := map[string]bool{}
	for i := range w.Spec.PodGroupTemplates {
		t, at := &w.Spec.PodGroupTemplates[i], templates.Index(i)
		if seen[t.Name] {
			errs = append(errs, field.Duplicate(at, fmt.Sprintf("name=%q", t.Name)))
		}
		seen[t.Name] = true
		errs = append(errs, validateTemplate(t, was[t.Name], old != nil, at)...)
	}
	return errs
}

// validateTemplate checks a new template, or that a stored one is unchanged but for the size of its gang.
func validateTemplate(t, was *schedulingv1beta1.PodGroupTemplate, stored bool, at *field.Path) field.ErrorList {
	if stored {
		if was == nil {
			return field.ErrorList{check.ImmutableError(at)}
		}
		is, old := t.DeepCopy(), was.DeepCopy()
		if is.SchedulingPolicy.Gang != nil && old.SchedulingPolicy.Gang != nil {
			is.SchedulingPolicy.Gang.MinCount, old.SchedulingPolicy.Gang.MinCount = 0, 0
		}
		return append(check.Immutable(is, old, at), validateSchedulingPolicy(&t.SchedulingPolicy, at.Child("schedulingPolicy"))...)
	}
	errs := append(requiredName(t.Name, at.Child("name"), validation.IsDNS1123Label),
		validateSchedulingPolicy(&t.SchedulingPolicy, at.Child("schedulingPolicy"))...)
	errs = append(errs, validateDisruption(t.DisruptionMode, at.Child("disruptionMode"))...)
	return append(errs, validateImportance(t.PriorityClassName, t.Priority, at)...)
}

func validateControllerRef(r *schedulingv1beta1.TypedLocalObjectReference, at *field.Path) (errs field.ErrorList) {
	if r == nil {
		return nil
	}
	if r.APIGroup != "" {
		errs = check.DNSSubdomain(r.APIGroup, at.Child("apiGroup"))
	}
	path := func(name string) []string { return check.PathSegment(name, false) }
	return append(append(errs, requiredName(r.Kind, at.Child("kind"), path)...), requiredName(r.Name, at.Child("name"), path)...)
}
