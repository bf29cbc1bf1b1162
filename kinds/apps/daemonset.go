package apps

import (
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
)

// DaemonSets keep one pod on each node.
func DaemonSets() *kind.Def {
	spec, status := appsv1.DaemonSetSpec{}.SwaggerDoc(), appsv1.DaemonSetStatus{}.SwaggerDoc()
	number := func(name, doc string, value func(*appsv1.DaemonSetStatus) int32) kind.Column[appsv1.DaemonSet] {
		return kind.Column[appsv1.DaemonSet]{Name: name, Type: "integer", Description: status[doc],
			Value: func(d *appsv1.DaemonSet) any { return int64(value(&d.Status)) }}
	}
	return kind.Define(kind.Resource[appsv1.DaemonSet]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, Plural: "daemonsets",
			Short: []string{"ds"}, Categories: []string{"all"},
			Generation:       true,
			HiddenAnnotation: appsv1.DeprecatedTemplateGeneration,
		},
		Spec:     func(d *appsv1.DaemonSet) any { return &d.Spec },
		Status:   func(d *appsv1.DaemonSet) any { return &d.Status },
		Default:  defaultDaemonSet,
		Prepare:  prepareDaemonSet,
		Validate: validateDaemonSet,
		Warn:     warnDaemonSet,
		Ready: func(d *appsv1.DaemonSet) bool {
			s := &d.Status
			return s.ObservedGeneration == d.Generation && s.UpdatedNumberScheduled == s.DesiredNumberScheduled &&
				s.NumberAvailable == s.DesiredNumberScheduled
		},
		Columns: []kind.Column[appsv1.DaemonSet]{
			kind.NameColumn[appsv1.DaemonSet](),
			number("Desired", "desiredNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.DesiredNumberScheduled }),
			number("Current", "currentNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.CurrentNumberScheduled }),
			number("Ready", "numberReady", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberReady }),
			number("Up-to-date", "updatedNumberScheduled", func(s *appsv1.DaemonSetStatus) int32 { return s.UpdatedNumberScheduled }),
			number("Available", "numberAvailable", func(s *appsv1.DaemonSetStatus) int32 { return s.NumberAvailable }),
			{Name: "Node Selector", Description: corev1.PodSpec{}.SwaggerDoc()["nodeSelector"], Value: func(d *appsv1.DaemonSet) any {
				return labels.FormatLabels(d.Spec.Template.Spec.NodeSelector)
			}},
			kind.AgeColumn[appsv1.DaemonSet](),
			kind.ContainersColumn(daemonSetContainers),
			kind.ImagesColumn(daemonSetContainers),
			{Name: "Selector", Wide: true, Description: spec["selector"],
				Value: func(d *appsv1.DaemonSet) any { return metav1.FormatLabelSelector(d.Spec.Selector) }},
		},
		Subs: []kind.Sub[appsv1.DaemonSet]{{Name: "status", Validate: validateDaemonSetStatus, Prepare: func(d, old *appsv1.DaemonSet) {
			setTemplateGeneration(d, templateGeneration(old))
		}}},
	})
}

func daemonSetTemplate(o *appsv1.DaemonSet) *corev1.PodTemplateSpec {
	if o == nil {
		return nil
	}
	return &o.Spec.Template
}

func daemonSetContainers(d *appsv1.DaemonSet) []corev1.Container {
	return d.Spec.Template.Spec.Containers
}

func defaultDaemonSet(d *appsv1.DaemonSet) {
	podspec.DefaultTemplate(&d.Spec.Template)
	update := &d.Spec.UpdateStrategy
	if update.Type == "" {
		update.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if update.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		defaulting.IfNil(&update.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		defaulting.IfNil(&update.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		defaulting.IfNil(&update.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	defaulting.IfNil(&d.Spec.RevisionHistoryLimit, 10)
	// A set without a template generation gets the first one.
	if templateGeneration(d) == 0 {
		setTemplateGeneration(d, 0)
	}
}

// prepareDaemonSet keeps the template generation, which only an annotation shows: it is incremented when the template
// changes, and clients cannot change it.
func prepareDaemonSet(d, old *appsv1.DaemonSet) {
	podspec.DropDisabledTemplateFields(&d.Spec.Template, daemonSetTemplate(old))
	number := max(templateGeneration(d), 1)
	if old != nil {
		number = templateGeneration(old)
		if !equality.Semantic.DeepEqual(old.Spec.Template, d.Spec.Template) {
			number++
		}
	}
	setTemplateGeneration(d, number)
}

func setTemplateGeneration(d *appsv1.DaemonSet, number int64) {
	if d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	d.Annotations[appsv1.DeprecatedTemplateGeneration] = strconv.FormatInt(number, 10)
}

func templateGeneration(d *appsv1.DaemonSet) int64 {
	n, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func warnDaemonSet(d, old *appsv1.DaemonSet) []string {
	if old != nil && templateGeneration(d) == templateGeneration(old) {
		return nil
	}
	return podspec.TemplateWarnings(field.NewPath("spec", "template"), &d.Spec.Template, daemonSetTemplate(old))
}

func validateDaemonSet(d, old *appsv1.DaemonSet) field.ErrorList {
	s, path := &d.Spec, field.NewPath("spec")
	var errs field.ErrorList
	var tolerant metavalidation.LabelSelectorValidationOptions
	if old != nil {
		tolerant.AllowInvalidLabelValueInSelector = metavalidation.LabelSelectorHasInvalidLabelValue(old.Spec.Selector)
		errs = append(errs, check.Immutable(s.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	errs = append(errs, metavalidation.ValidateLabelSelector(s.Selector, tolerant, path.Child("selector"))...)
	template := path.Child("template")
	if selector, err := metav1.LabelSelectorAsSelector(s.Selector); err == nil && !selector.Matches(labels.Set(s.Template.Labels)) {
		errs = append(errs, field.Invalid(template.Child("metadata", "labels"), s.Template.Labels,
			"`selector` does not match template `labels`"))
	}
	if isEmpty(s.Selector) {
		errs = append(errs, field.Invalid(path.Child("selector"), s.Selector, "empty selector is invalid for daemonset"))
	}
	errs = append(errs, podspec.ValidateTemplate(&s.Template, template, podspec.TemplateAllowances(daemonSetTemplate(old)))...)
	errs = append(errs, validateAlwaysRuns(&s.Template.Spec, template.Child("spec"), "DaemonSet")...)
	errs = append(errs, check.NonNegative(int64(s.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, check.NonNegative(templateGeneration(d), path.Child("templateGeneration"))...)
	errs = append(errs, validateDaemonSetUpdate(&s.UpdateStrategy, path.Child("updateStrategy"))...)
	return append(errs, check.NonNegativePtr(s.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
}

func validateDaemonSetUpdate(s *appsv1.DaemonSetUpdateStrategy, path *field.Path) field.ErrorList {
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		shown := s.DeepCopy()
		if shown.RollingUpdate != nil {
			defaulting.IfNil(&shown.RollingUpdate.MaxUnavailable, intstr.IntOrString{})
			defaulting.IfNil(&shown.RollingUpdate.MaxSurge, intstr.IntOrString{})
		}
		return field.ErrorList{field.NotSupported(path, check.GoFields(shown),
			[]appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	}
	if s.RollingUpdate == nil {
		return field.ErrorList{field.Required(path.Child("rollingUpdate"), "")}
	}
	unavailable, surge := ptr.Deref(s.RollingUpdate.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(s.RollingUpdate.MaxSurge,
		intstr.IntOrString{})
	unavailablePath, surgePath := path.Child("rollingUpdate", "maxUnavailable"), path.Child("rollingUpdate", "maxSurge")
	errs := check.IntOrPercent(unavailable, unavailablePath)
	errs = append(errs, check.IntOrPercent(surge, surgePath)...)
	errs = append(errs, check.AtMost100Percent(unavailable, unavailablePath)...)
	errs = append(errs, check.AtMost100Percent(surge, surgePath)...)
	switch {
	case intOrPercent(unavailable) != 0 && intOrPercent(surge) != 0:
		errs = append(errs, field.Invalid(surgePath, surge, "may not be set when maxUnavailable is non-zero"))
	case intOrPercent(unavailable) == 0 && intOrPercent(surge) == 0:
		errs = append(errs, field.Required(unavailablePath, "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(d, old *appsv1.DaemonSet) field.ErrorList {
	s, path := &d.Status, field.NewPath("status")
	errs := validateNonNegative(path, []namedCount{
		{"currentNumberScheduled", s.CurrentNumberScheduled}, {"numberMisscheduled", s.NumberMisscheduled},
		{"desiredNumberScheduled", s.DesiredNumberScheduled}, {"numberReady", s.NumberReady},
	})
	errs = append(errs, check.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))...)
	errs = append(errs, validateNonNegative(path, []namedCount{
		{"updatedNumberScheduled", s.UpdatedNumberScheduled}, {"numberAvailable", s.NumberAvailable},
		{"numberUnavailable", s.NumberUnavailable},
	})...)
	errs = append(errs, check.NonNegativePtr(s.CollisionCount, path.Child("collisionCount"))...)
	return append(errs, validateNotDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}
