package apps

import (
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/core/volumesource"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
)

func warnStatefulSet(s, old *appsv1.StatefulSet) []string {
	var warnings []string
	if old == nil || s.Generation != old.Generation {
		warnings = podspec.TemplateWarnings(field.NewPath("spec", "template"), &s.Spec.Template, statefulSetTemplate(old))
	}
	for i := range s.Spec.VolumeClaimTemplates {
		path := field.NewPath("spec", "volumeClaimTemplates").Index(i)
		if old != nil {
			path = path.Child("Spec")
		}
		warnings = append(warnings, volumesource.ClaimSpecWarnings(path, &s.Spec.VolumeClaimTemplates[i].Spec)...)
	}
	if n := s.Spec.RevisionHistoryLimit; n != nil && *n < 0 {
		warnings = append(warnings, "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended")
	}
	return warnings
}

// statefulRules tells which checks of a spec run: fields that cannot change are not checked again on update.
type statefulRules struct {
	update       bool
	skipTemplate bool
	allow        podspec.Allowances
}

func validateStatefulSet(s, old *appsv1.StatefulSet) field.ErrorList {
	path := field.NewPath("spec")
	if old == nil {
		return statefulRules{}.validate(&s.Spec, path)
	}
	rules := statefulRules{update: true, allow: podspec.TemplateAllowances(&old.Spec.Template)}
	// An invalid template that is stored already may stay.
	rules.skipTemplate = len(rules.validate(&old.Spec, nil)) > 0
	errs := rules.validate(&s.Spec, path)
	errs = append(errs, check.Immutable(s.Spec.Selector, old.Spec.Selector, path.Child("selector"))...)
	errs = append(errs, check.ImmutableStruct(withoutTypeMeta(s.Spec.VolumeClaimTemplates), withoutTypeMeta(old.Spec.VolumeClaimTemplates),
		path.Child("volumeClaimTemplates"))...)
	errs = append(errs, check.Immutable(s.Spec.ServiceName, old.Spec.ServiceName, path.Child("serviceName"))...)
	return append(errs, check.Immutable(s.Spec.PodManagementPolicy, old.Spec.PodManagementPolicy, path.Child("podManagementPolicy"))...)
}

// withoutTypeMeta returns claims without apiVersion and kind, which only clients see.
func withoutTypeMeta(claims []corev1.PersistentVolumeClaim) []corev1.PersistentVolumeClaim {
	claims = slices.Clone(claims)
	for i := range claims {
		claims[i].TypeMeta = metav1.TypeMeta{}
	}
	return claims
}

func (r statefulRules) validate(s *appsv1.StatefulSetSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch s.PodManagementPolicy {
	case "":
		errs = append(errs, field.Required(path.Child("podManagementPolicy"), ""))
	case appsv1.OrderedReadyPodManagement, appsv1.ParallelPodManagement:
	default:
		errs = append(errs, field.Invalid(path.Child("podManagementPolicy"), s.PodManagementPolicy, "must be 'OrderedReady' or 'Parallel'"))
	}
	errs = append(errs, validateStatefulUpdate(&s.UpdateStrategy, path.Child("updateStrategy"))...)
	errs = append(errs, validateRetention(s.PersistentVolumeClaimRetentionPolicy, path.Child("persistentVolumeClaimRetentionPolicy"))...)
	if !r.update {
		for i := range s.VolumeClaimTemplates {
			errs = append(errs, volumesource.ValidateClaimSpec(&s.VolumeClaimTemplates[i].Spec,
				path.Child("volumeClaimTemplates").Index(i).Child("spec"))...)
		}
	}
	errs = append(errs, check.NonNegative(int64(ptr.Deref(s.Replicas, 0)), path.Child("replicas"))...)
	errs = append(errs, check.NonNegative(int64(s.MinReadySeconds), path.Child("minReadySeconds"))...)
	if s.Ordinals != nil {
		errs = append(errs, check.NonNegative(int64(s.Ordinals.Start), path.Child("ordinals.start"))...)
	}
	if !r.update && s.ServiceName != "" {
		errs = append(errs, check.DNSLabel(s.ServiceName, path.Child("serviceName"))...)
	}
	if s.Selector == nil {
		errs = append(errs, field.Required(path.Child("selector"), ""))
	} else {
		errs = append(errs, metavalidation.ValidateLabelSelector(s.Selector, metavalidation.LabelSelectorValidationOptions{},
			path.Child("selector"))...)
		if isEmpty(s.Selector) {
			errs = append(errs, field.Invalid(path.Child("selector"), s.Selector, "empty selector is invalid for statefulset"))
		}
	}
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), s.Selector, ""))
	} else {
		errs = append(errs, r.validateTemplate(s, selector, path.Child("template"))...)
	}
	return append(errs, validateAlwaysRuns(&s.Template.Spec, path.Child("template", "spec"), "StatefulSet")...)
}

// validateTemplate checks the template as pods will have it: named by the set, with the volumes of the claim
// templates.
func (r statefulRules) validateTemplate(s *appsv1.StatefulSetSpec, selector labels.Selector, path *field.Path) field.ErrorList {
	t := s.Template.DeepCopy()
	t.Spec.Subdomain, t.Spec.Hostname = "", ""
	if len(s.VolumeClaimTemplates) > 0 {
		var volumes []corev1.Volume
		claimed := map[string]bool{}
		for _, c := range s.VolumeClaimTemplates {
			if claimed[c.Name] {
				continue
			}
			claimed[c.Name] = true
			volumes = append(volumes, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name},
			}})
		}
		own := slices.DeleteFunc(t.Spec.Volumes, func(v corev1.Volume) bool { return claimed[v.Name] })
		t.Spec.Volumes = append(volumes, own...)
	}
	var errs field.ErrorList
	if !selector.Empty() && !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(path.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	if r.skipTemplate {
		return append(errs, podspec.ValidateTemplateMeta(t, path, r.allow)...)
	}
	errs = append(errs, podspec.ValidateTemplate(t, path, r.allow)...)
	return append(errs, podspec.ValidateTemplateMeta(t, path, r.allow)...)
}

func validateStatefulUpdate(s *appsv1.StatefulSetUpdateStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	shown := s.DeepCopy()
	if shown.RollingUpdate != nil {
		defaulting.IfNil(&shown.RollingUpdate.Partition, 0)
	}
	switch {
	case s.Type == "":
		return field.ErrorList{field.Required(path, "")}
	case s.Type == appsv1.OnDeleteStatefulSetStrategyType && s.RollingUpdate != nil:
		return field.ErrorList{field.Invalid(rolling, check.GoFields(shown.RollingUpdate),
			"only allowed for updateStrategy 'RollingUpdate'")}
	case s.Type == appsv1.OnDeleteStatefulSetStrategyType:
		return nil
	case s.Type != appsv1.RollingUpdateStatefulSetStrategyType:
		return field.ErrorList{field.Invalid(path, check.GoFields(shown),
			fmt.Sprintf("must be '%s' or '%s'", appsv1.RollingUpdateStatefulSetStrategyType, appsv1.OnDeleteStatefulSetStrategyType))}
	case s.RollingUpdate == nil:
		return nil
	}
	errs := check.NonNegative(int64(ptr.Deref(s.RollingUpdate.Partition, 0)), rolling.Child("partition"))
	if m := s.RollingUpdate.MaxUnavailable; m != nil {
		path := rolling.Child("maxUnavailable")
		errs = append(errs, check.IntOrPercent(*m, path)...)
		if intOrPercent(*m) == 0 {
			errs = append(errs, field.Invalid(path, *m, "cannot be 0"))
		}
		errs = append(errs, check.AtMost100Percent(*m, path)...)
	}
	return errs
}

func validateRetention(p *appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy, path *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	known := []appsv1.PersistentVolumeClaimRetentionPolicyType{
		appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
	}
	for _, w := range []struct {
		name  string
		value appsv1.PersistentVolumeClaimRetentionPolicyType
	}{{"whenDeleted", p.WhenDeleted}, {"whenScaled", p.WhenScaled}} {
		if !slices.Contains(known, w.value) {
			errs = append(errs, field.NotSupported(path.Child(w.name), w.value, known))
		}
	}
	return errs
}

func validateStatefulSetStatus(set, old *appsv1.StatefulSet) field.ErrorList {
	s, path := &set.Status, field.NewPath("status")
	parts := []namedCount{
		{"readyReplicas", s.ReadyReplicas}, {"currentReplicas", s.CurrentReplicas},
		{"updatedReplicas", s.UpdatedReplicas}, {"availableReplicas", s.AvailableReplicas},
	}
	errs := check.NonNegative(int64(s.Replicas), path.Child("replicas"))
	errs = append(errs, validateNonNegative(path, parts)...)
	errs = append(errs, check.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, check.NonNegativePtr(s.CollisionCount, path.Child("collisionCount"))...)
	errs = append(errs, validateAtMost(path, s.Replicas, "cannot be greater than status.replicas", parts)...)
	errs = append(errs, validateAtMost(path, s.ReadyReplicas, "cannot be greater than status.readyReplicas", parts[3:])...)
	return append(errs, validateNotDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}
