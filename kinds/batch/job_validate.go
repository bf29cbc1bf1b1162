package batch

import (
	"fmt"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/check"
)

// Bounds that limit the length of the lists of indexes in a status.
const (
	manyCompletions   = 100_000
	manyFailures      = 10_000
	maxIndexed        = 100_000
	maxManagerName    = 63
	maxRules          = 20
	maxPatterns       = 20
	maxExitCodes      = 255
	maxSucceededTexts = 64 * 1024
)

func validateJob(j, old *batchv1.Job) field.ErrorList {
	path := field.NewPath("spec")
	var errs field.ErrorList
	if old == nil {
		errs = append(errs, validateGeneratedSelector(j)...)
		errs = append(errs, validateSelectedSpec(&j.Spec, nil, path)...)
	} else {
		errs = append(errs, validateSelectedSpec(&j.Spec, &old.Spec, path)...)
		errs = append(errs, validateJobChange(j, old, path)...)
	}
	if n := ptr.Deref(j.Spec.Completions, 0); isIndexed(&j.Spec) && n > 0 {
		if last := fmt.Sprintf("%s-%d", j.Name, n-1); len(utilvalidation.IsDNS1123Label(last)) > 0 {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), j.Name,
				"will not able to create pod with invalid DNS label: "+last))
		}
	}
	return errs
}

// validateGeneratedSelector refuses labels of the client that contradict the generated ones.
func validateGeneratedSelector(j *batchv1.Job) field.ErrorList {
	if ptr.Deref(j.Spec.ManualSelector, false) || j.Spec.Selector == nil {
		return nil
	}
	var errs field.ErrorList
	if j.UID == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "uid"), ""))
	}
	path := field.NewPath("spec", "template", "metadata", "labels")
	expected := labels.Set{}
	for _, l := range []struct{ key, value string }{
		{oldUIDLabel, string(j.UID)}, {oldNameLabel, j.Name},
		{batchv1.ControllerUidLabel, string(j.UID)}, {batchv1.JobNameLabel, j.Name},
	} {
		expected[l.key] = l.value
		text := fmt.Sprintf("must be '%s'", l.value)
		if actual, found := j.Spec.Template.Labels[l.key]; !found {
			errs = append(errs, field.Required(path.Key(l.key), text))
		} else if actual != l.value {
			errs = append(errs, field.Invalid(path.Key(l.key), j.Spec.Template.Labels, text))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(j.Spec.Selector); err == nil && !selector.Matches(expected) {
		errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), j.Spec.Selector, "`selector` not auto-generated"))
	}
	return errs
}

// validateSelectedSpec checks the spec of a job with its selector.
func validateSelectedSpec(s, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := validateJobSpec(s, old, path)
	if s.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	} else {
		var tolerant metavalidation.LabelSelectorValidationOptions
		tolerant.AllowInvalidLabelValueInSelector = old != nil && metavalidation.LabelSelectorHasInvalidLabelValue(old.Selector)
		errs = append(errs, metavalidation.ValidateLabelSelector(s.Selector, tolerant, path.Child("selector"))...)
	}
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !selector.Matches(labels.Set(s.Template.Labels)) {
		errs = append(errs, field.Invalid(path.Child("template", "metadata", "labels"), s.Template.Labels,
			"`selector` does not match template `labels`"))
	}
	return errs
}

// validateJobSpec checks what jobs and the job templates of cron jobs share.
func validateJobSpec(s, old *batchv1.JobSpec, path *field.Path) field.ErrorList {
	errs := check.NonNegativePtr(s.Parallelism, path.Child("parallelism"))
	errs = append(errs, check.NonNegativePtr(s.Completions, path.Child("completions"))...)
	errs = append(errs, check.NonNegativePtr(s.ActiveDeadlineSeconds, path.Child("activeDeadlineSeconds"))...)
	errs = append(errs, check.NonNegativePtr(s.BackoffLimit, path.Child("backoffLimit"))...)
	errs = append(errs, check.NonNegativePtr(s.TTLSecondsAfterFinished, path.Child("ttlSecondsAfterFinished"))...)
	errs = append(errs, check.NonNegativePtr(s.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex"))...)
	errs = append(errs, check.NonNegativePtr(s.MaxFailedIndexes, path.Child("maxFailedIndexes"))...)
	if s.MaxFailedIndexes != nil && s.BackoffLimitPerIndex == nil {
		errs = append(errs, field.Required(path.Child("backoffLimitPerIndex"), "when maxFailedIndexes is specified"))
	}
	if m := s.ManagedBy; m != nil {
		errs = append(errs, utilvalidation.IsDomainPrefixedPath(path.Child("managedBy"), *m)...)
		if len(*m) > maxManagerName {
			errs = append(errs, field.TooLong(path.Child("managedBy"), "", maxManagerName))
		}
	}
	errs = append(errs, validateCompletionMode(s, path)...)
	if s.PodFailurePolicy != nil {
		errs = append(errs, validateFailurePolicy(s, path.Child("podFailurePolicy"))...)
	}
	if s.SuccessPolicy != nil && !isIndexed(s) {
		errs = append(errs, field.Invalid(path.Child("successPolicy"), check.GoFields(*s.SuccessPolicy),
			"requires indexed completion mode"))
	} else if s.SuccessPolicy != nil {
		errs = append(errs, validateSuccessPolicy(s, path.Child("successPolicy"))...)
	}
	if p := s.PodReplacementPolicy; p != nil {
		known := []batchv1.PodReplacementPolicy{batchv1.Failed, batchv1.TerminatingOrFailed}
		if s.PodFailurePolicy != nil {
			known = known[:1]
		}
		if !slices.Contains(known, *p) {
			errs = append(errs, field.NotSupported(path.Child("podReplacementPolicy"), *p, known))
		}
	}
	errs = append(errs, podspec.ValidateTemplate(&s.Template, path.Child("template"), podspec.TemplateAllowances(oldTemplate(old)))...)
	restart, policy := path.Child("template", "spec", "restartPolicy"), s.Template.Spec.RestartPolicy
	switch {
	case policy == corev1.RestartPolicyAlways || policy == "":
		errs = append(errs, field.Required(restart,
			fmt.Sprintf("valid values: %q, %q", corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever)))
	case policy != corev1.RestartPolicyOnFailure && policy != corev1.RestartPolicyNever:
		errs = append(errs, field.NotSupported(restart, policy,
			[]corev1.RestartPolicy{corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}))
	case s.PodFailurePolicy != nil && policy != corev1.RestartPolicyNever:
		errs = append(errs, field.Invalid(restart, policy,
			fmt.Sprintf("only %q is supported when podFailurePolicy is specified", corev1.RestartPolicyNever)))
	}
	return errs
}

func validateCompletionMode(s *batchv1.JobSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	mode := ptr.Deref(s.CompletionMode, batchv1.NonIndexedCompletion)
	failed := path.Child("maxFailedIndexes")
	switch mode {
	case batchv1.NonIndexedCompletion:
		if n := s.BackoffLimitPerIndex; n != nil {
			errs = append(errs, field.Invalid(path.Child("backoffLimitPerIndex"), *n, "requires indexed completion mode"))
		}
		if n := s.MaxFailedIndexes; n != nil {
			errs = append(errs, field.Invalid(failed, *n, "requires indexed completion mode"))
		}
		return errs
	case batchv1.IndexedCompletion:
	default:
		return field.ErrorList{field.NotSupported(path.Child("completionMode"), mode,
			[]batchv1.CompletionMode{batchv1.NonIndexedCompletion, batchv1.IndexedCompletion})}
	}
	most := func(n *int32, limit int32, path *field.Path, when string) {
		if n != nil && *n > limit {
			errs = append(errs, field.Invalid(path, *n, fmt.Sprintf("must be less than or equal to %d%s", limit, when)))
		}
	}
	if s.Completions == nil {
		errs = append(errs, field.Required(path.Child("completions"), "when completion mode is Indexed"))
	}
	most(s.Parallelism, maxIndexed, path.Child("parallelism"), " when completion mode is Indexed")
	if s.Completions != nil && s.MaxFailedIndexes != nil && *s.MaxFailedIndexes > *s.Completions {
		errs = append(errs, field.Invalid(failed, *s.MaxFailedIndexes, "must be less than or equal to completions"))
	}
	most(s.MaxFailedIndexes, maxIndexed, failed, "")
	if ptr.Deref(s.Completions, 0) > manyCompletions && s.BackoffLimitPerIndex != nil {
		if s.MaxFailedIndexes == nil {
			errs = append(errs, field.Required(failed, fmt.Sprintf("must be specified when completions is above %d", manyCompletions)))
		}
		when := fmt.Sprintf(" when completions are above %d and used with backoff limit per index", manyCompletions)
		most(s.Parallelism, manyFailures, path.Child("parallelism"), when)
		most(s.MaxFailedIndexes, manyFailures, failed, when)
	}
	return errs
}

func validateJobChange(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	s, was := &j.Spec, &old.Spec
	errs := validateCompletionsChange(s, was, path)
	errs = append(errs, check.Immutable(s.Selector, was.Selector, path.Child("selector"))...)
	errs = append(errs, validateTemplateChange(j, old, path.Child("template"))...)
	errs = append(errs, check.ImmutableStruct(s.CompletionMode, was.CompletionMode, path.Child("completionMode"))...)
	errs = append(errs, check.ImmutableStruct(s.PodFailurePolicy, was.PodFailurePolicy, path.Child("podFailurePolicy"))...)
	errs = append(errs, check.ImmutableStruct(s.BackoffLimitPerIndex, was.BackoffLimitPerIndex, path.Child("backoffLimitPerIndex"))...)
	errs = append(errs, check.ImmutableStruct(s.ManagedBy, was.ManagedBy, path.Child("managedBy"))...)
	return append(errs, check.ImmutableStruct(s.SuccessPolicy, was.SuccessPolicy, path.Child("successPolicy"))...)
}

func validateCompletionsChange(s, was *batchv1.JobSpec, spec *field.Path) field.ErrorList {
	path := spec.Child("completions")
	switch {
	case !isIndexed(s):
		return check.ImmutableStruct(s.Completions, was.Completions, path)
	case equality.Semantic.DeepEqual(s.Completions, was.Completions) || s.Completions == nil ||
		*s.Completions == ptr.Deref(s.Parallelism, 0):
		return nil
	}
	return field.ErrorList{field.Invalid(path, *s.Completions,
		fmt.Sprintf("can only be modified in tandem with %s", spec.Child("parallelism")))}
}

// validateTemplateChange lets queue controllers change the scheduling directives and resources of a job that is
// suspended and has no running pods.
func validateTemplateChange(j, old *batchv1.Job, path *field.Path) field.ErrorList {
	now, was := &j.Spec.Template, old.Spec.Template.DeepCopy()
	idle := ptr.Deref(old.Spec.Suspend, false) && old.Status.Active == 0 &&
		(old.Status.StartTime == nil || anyCondition(&old.Status, batchv1.JobSuspended, corev1.ConditionTrue))
	if !idle {
		return check.ImmutableStruct(now, was, path)
	}
	switch a, b := now.Spec.Affinity, was.Spec.Affinity; {
	case a == nil && b != nil:
		if b.NodeAffinity = nil; *b == (corev1.Affinity{}) {
			was.Spec.Affinity = nil
		}
	case a != nil && b == nil:
		was.Spec.Affinity = &corev1.Affinity{NodeAffinity: a.NodeAffinity}
	case a != nil:
		b.NodeAffinity = a.NodeAffinity
	}
	was.Annotations, was.Labels = now.Annotations, now.Labels
	was.Spec.NodeSelector, was.Spec.Tolerations = now.Spec.NodeSelector, now.Spec.Tolerations
	was.Spec.SchedulingGates = now.Spec.SchedulingGates
	allowResources(now.Spec.Containers, was.Spec.Containers)
	allowResources(now.Spec.InitContainers, was.Spec.InitContainers)
	return check.ImmutableStruct(now.Spec, was.Spec, field.NewPath("spec", "template.spec"))
}

func allowResources(now, was []corev1.Container) {
	if len(now) != len(was) {
		return
	}
	for i := range now {
		if now[i].Name == was[i].Name {
			was[i].Resources = now[i].Resources
		}
	}
}
