package podkind

import (
	"fmt"
	"math"
	"reflect"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/lib/check"
)

func validatePod(p, old *corev1.Pod) field.ErrorList {
	spec := field.NewPath("spec")
	if old != nil {
		return validatePodUpdate(p, old, spec)
	}
	errs := validateWholePod(p, podspec.Allowances{ForPod: true})
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "cannot be set on create"))
	}
	if p.Spec.NodeName != "" && len(p.Spec.SchedulingGates) != 0 {
		errs = append(errs, field.Forbidden(spec.Child("nodeName"), "cannot be set until all schedulingGates have been cleared"))
	}
	errs = append(errs, podspec.ValidateSeccompAnnotations(&p.ObjectMeta, &p.Spec, spec)...)
	return append(errs, podspec.ValidateAppArmorAnnotations(&p.ObjectMeta, &p.Spec, spec)...)
}

// podAllowances returns the rules that an updated pod may go on breaking.
func podAllowances(old *corev1.Pod) podspec.Allowances {
	a := podspec.AllowancesOf(&old.Spec, &old.ObjectMeta)
	a.ForPod = true
	return a
}

// validateWholePod checks a pod by itself. Some of the rules are for pods and not for templates, which existed before
// the rules.
func validateWholePod(p *corev1.Pod, allow podspec.Allowances) field.ErrorList {
	spec := field.NewPath("spec")
	errs := podspec.ValidateAnnotations(p.Annotations, &p.Spec, field.NewPath("metadata", "annotations"), allow)
	errs = append(errs, podspec.Validate(&p.Spec, &p.ObjectMeta, spec, allow)...)
	if p.Spec.ServiceAccountName == "" {
		for i, v := range p.Spec.Volumes {
			if v.Projected == nil {
				continue
			}
			for j, s := range v.Projected.Sources {
				if s.ServiceAccountToken != nil {
					errs = append(errs, field.Forbidden(spec.Child("volumes").Index(i).Child("projected",
						"sources").Index(j).Child("serviceAccountToken"),
						"must not be specified when serviceAccountName is not set"))
				}
			}
		}
	}
	errs = append(errs, check.NonNegativePtr(p.Spec.TerminationGracePeriodSeconds, spec.Child("terminationGracePeriodSeconds"))...)
	for _, list := range []struct {
		name       string
		containers []corev1.Container
	}{{"containers", p.Spec.Containers}, {"initContainers", p.Spec.InitContainers}} {
		for i := range list.containers {
			errs = append(errs, containerspec.ValidateImage(&list.containers[i], spec.Child(list.name).Index(i))...)
		}
	}
	return errs
}

// validateChangedPod checks an updated pod: its metadata, spec and annotations.
func validateChangedPod(p, old *corev1.Pod, allow podspec.Allowances) field.ErrorList {
	meta := field.NewPath("metadata")
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, meta)
	errs = append(errs, validateWholePod(p, allow)...)
	return append(errs, validateAnnotationChanges(p, old, meta.Child("annotations"), allow)...)
}

// changeableFields are the fields of a pod's spec that may change, as the error lists them.
const changeableFields = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`," +
	"`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"

func validatePodUpdate(p, old *corev1.Pod, spec *field.Path) field.ErrorList {
	allow := podAllowances(old)
	errs := validateChangedPod(p, old, allow)
	for _, list := range []struct {
		name    string
		is, was []corev1.Container
	}{{"containers", p.Spec.Containers, old.Spec.Containers}, {"initContainers", p.Spec.InitContainers, old.Spec.InitContainers}} {
		at := spec.Child(list.name)
		if len(list.is) != len(list.was) {
			return append(errs, field.Forbidden(at, "pod updates may not add or remove containers"))
		}
		for i := range list.is {
			errs = append(errs, check.Required(list.is[i].Image, at.Index(i).Child("image"))...)
			errs = append(errs, containerspec.ValidateImage(&list.is[i], at.Index(i))...)
		}
	}
	deadline, stop := validateDeadlineChange(p.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds,
		spec.Child("activeDeadlineSeconds"))
	if errs = append(errs, deadline...); stop {
		return errs
	}
	errs = append(errs, validateTolerationChange(p.Spec.Tolerations, old.Spec.Tolerations, spec.Child("tolerations"), allow)...)
	for i, gate := range p.Spec.SchedulingGates {
		if !slices.Contains(old.Spec.SchedulingGates, gate) && !slices.Contains(p.Spec.SchedulingGates[i+1:], gate) {
			errs = append(errs, field.Forbidden(spec.Child("schedulingGates").Index(i).Child("name"),
				fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", gate.Name)))
		}
	}
	if equality.Semantic.DeepEqual(p.Spec, old.Spec) {
		return errs
	}
	rest, bad := revertMutableFields(&p.Spec, &old.Spec, spec)
	errs = append(errs, bad...)
	if !equality.Semantic.DeepEqual(*rest, old.Spec) {
		errs = append(errs, field.Forbidden(spec,
			fmt.Sprintf("pod updates may not change fields other than %s\n%v", changeableFields, check.GoFieldsDiff(old.Spec, *rest))))
	}
	return errs
}

// revertMutableFields returns the spec with all fields that may change reverted to their old values.
func revertMutableFields(s, old *corev1.PodSpec, at *field.Path) (*corev1.PodSpec, field.ErrorList) {
	rest := s.DeepCopy()
	for i := range rest.Containers {
		rest.Containers[i].Image = old.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = old.InitContainers[i].Image
	}
	rest.ActiveDeadlineSeconds, rest.SchedulingGates, rest.Tolerations = old.ActiveDeadlineSeconds, old.SchedulingGates, old.Tolerations
	if was, is := old.TerminationGracePeriodSeconds, rest.TerminationGracePeriodSeconds; was != nil && *was < 0 && is != nil && *is == 1 {
		rest.TerminationGracePeriodSeconds = was
	}
	if len(old.SchedulingGates) == 0 {
		return rest, nil
	}
	// As long as a pod has scheduling gates, its placement may be narrowed.
	var errs field.ErrorList
	for key, v := range old.NodeSelector {
		if is, still := rest.NodeSelector[key]; !still || is != v {
			errs = append(errs, field.Invalid(at.Child("nodeSelector"), rest.NodeSelector, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"))
			break
		}
	}
	rest.NodeSelector = old.NodeSelector
	return rest, append(errs, revertNodeAffinity(rest, old, at.Child("affinity", "nodeAffinity"))...)
}

// revertNodeAffinity reverts the node affinity, after checking that it was only narrowed.
func revertNodeAffinity(rest, old *corev1.PodSpec, at *field.Path) field.ErrorList {
	var is, was *corev1.NodeAffinity
	if old.Affinity != nil {
		was = old.Affinity.NodeAffinity
	}
	if rest.Affinity != nil {
		is = rest.Affinity.NodeAffinity
	}
	if equality.Semantic.DeepEqual(was, is) {
		return nil
	}
	errs := validateNarrowerAffinity(is, was, at.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"))
	switch {
	case rest.Affinity == nil:
		if was != nil {
			rest.Affinity = &corev1.Affinity{NodeAffinity: was}
		}
	case old.Affinity == nil && rest.Affinity.PodAffinity == nil && rest.Affinity.PodAntiAffinity == nil:
		rest.Affinity = nil
	default:
		rest.Affinity.NodeAffinity = was
	}
	return errs
}

func validateNarrowerAffinity(is, was *corev1.NodeAffinity, at *field.Path) field.ErrorList {
	if was == nil || was.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	oldTerms := was.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	var terms []corev1.NodeSelectorTerm
	if is != nil && is.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = is.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	if len(oldTerms) > 0 && len(oldTerms) != len(terms) {
		return field.ErrorList{field.Invalid(at, check.GoFields(terms), "no additions/deletions to non-empty NodeSelectorTerms list are allowed")}
	}
	var errs field.ErrorList
	for i := range oldTerms {
		if !isNarrower(&terms[i], &oldTerms[i]) {
			errs = append(errs, field.Invalid(at.Index(i), check.GoFields(terms[i]),
				"only additions are allowed (no mutations or deletions)"))
		}
	}
	return errs
}

// isNarrower reports whether requirements were only added to a term. A term without requirements matches nothing and
// must stay empty.
func isNarrower(is, was *corev1.NodeSelectorTerm) bool {
	if len(was.MatchExpressions) == 0 && len(was.MatchFields) == 0 {
		return len(is.MatchExpressions) == 0 && len(is.MatchFields) == 0
	}
	begins := func(is, was []corev1.NodeSelectorRequirement) bool {
		return len(is) >= len(was) && equality.Semantic.DeepEqual(is[:len(was)], was)
	}
	return (len(was.MatchExpressions) == 0 || begins(is.MatchExpressions, was.MatchExpressions)) &&
		(len(was.MatchFields) == 0 || begins(is.MatchFields, was.MatchFields))
}

// validateDeadlineChange refuses a later deadline. stop says that the rest of the pod is not to be compared.
func validateDeadlineChange(is, was *int64, at *field.Path) (errs field.ErrorList, stop bool) {
	switch {
	case is == nil && was != nil:
		return field.ErrorList{field.Invalid(at, is, "must not update from a positive integer to nil value")}, false
	case is == nil:
		return nil, false
	case *is < 0 || *is > math.MaxInt32:
		return check.InRange(*is, 0, math.MaxInt32, at), true
	case was != nil && *was < *is:
		return field.ErrorList{field.Invalid(at, *is, "must be less than or equal to previous value")}, true
	}
	return nil, false
}

// validateTolerationChange allows adding tolerations and changing their tolerationSeconds.
func validateTolerationChange(is, was []corev1.Toleration, at *field.Path, allow podspec.Allowances) field.ErrorList {
	for _, old := range was {
		if !slices.ContainsFunc(is, func(t corev1.Toleration) bool {
			old.TolerationSeconds = t.TolerationSeconds
			return reflect.DeepEqual(old, t)
		}) {
			return field.ErrorList{field.Forbidden(at, "existing toleration can not be modified except its tolerationSeconds")}
		}
	}
	return podplacement.ValidateTolerations(is, at, allow.Placement.ComparingTolerations)
}

// validateEphemeralContainers checks ephemeral containers that are added to a running pod.
func validateEphemeralContainers(p, old *corev1.Pod) field.ErrorList {
	if podspec.IsMirror(&old.ObjectMeta) {
		return field.ErrorList{field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers")}
	}
	errs := validateChangedPod(p, old, podAllowances(old))
	at := field.NewPath("spec", "ephemeralContainers")
	for _, was := range old.Spec.EphemeralContainers {
		// Of several with the same name the last counts.
		var is *corev1.EphemeralContainer
		for i := range p.Spec.EphemeralContainers {
			if p.Spec.EphemeralContainers[i].Name == was.Name {
				is = &p.Spec.EphemeralContainers[i]
			}
		}
		if is == nil {
			errs = append(errs, field.Forbidden(at, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name)))
		} else if !equality.Semantic.DeepEqual(was, *is) {
			errs = append(errs, field.Forbidden(at,
				fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v", was.Name, check.GoFieldsDiff(was, *is))))
		}
	}
	return errs
}
