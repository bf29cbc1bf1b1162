package apps

import (
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
)

// Deployments roll replica sets from one template to the next.
func Deployments() *kind.Def {
	status := appsv1.DeploymentStatus{}.SwaggerDoc()
	return kind.Define(kind.Resource[appsv1.Deployment]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "Deployment"}, Plural: "deployments",
			Short: []string{"deploy"}, Categories: []string{"all"},
			// Annotations are copied to replica sets, so that changes of them are rolled out.
			Generation: true,
		},
		Spec:   func(d *appsv1.Deployment) any { return &d.Spec },
		Status: func(d *appsv1.Deployment) any { return &d.Status },
		Changed: func(d, old *appsv1.Deployment) bool {
			return !equality.Semantic.DeepEqual(d.Annotations, old.Annotations)
		},
		Default:  defaultDeployment,
		Prepare:  prepareDeployment,
		Validate: validateDeployment,
		Warn:     warnDeployment,
		Ready: func(d *appsv1.Deployment) bool {
			s, want := &d.Status, ptr.Deref(d.Spec.Replicas, 1)
			return s.ObservedGeneration == d.Generation && s.UpdatedReplicas == want && s.Replicas == want && s.AvailableReplicas == want
		},
		Columns: []kind.Column[appsv1.Deployment]{
			kind.NameColumn[appsv1.Deployment](),
			{Name: "Ready", Description: "Number of the pod with ready state", Value: func(d *appsv1.Deployment) any {
				return fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, ptr.Deref(d.Spec.Replicas, 0))
			}},
			{Name: "Up-to-date", Description: status["updatedReplicas"],
				Value: func(d *appsv1.Deployment) any { return int64(d.Status.UpdatedReplicas) }},
			{Name: "Available", Description: status["availableReplicas"],
				Value: func(d *appsv1.Deployment) any { return int64(d.Status.AvailableReplicas) }},
			kind.AgeColumn[appsv1.Deployment](),
			kind.ContainersColumn(deploymentContainers),
			kind.ImagesColumn(deploymentContainers),
			{Name: "Selector", Wide: true, Description: appsv1.DeploymentSpec{}.SwaggerDoc()["selector"],
				Value: func(d *appsv1.Deployment) any {
					selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
					if err != nil {
						return "<invalid>"
					}
					return selector.String()
				}},
		},
		Subs: []kind.Sub[appsv1.Deployment]{
			{Name: "status", Validate: validateDeploymentStatus, Reset: []string{"spec", "metadata.labels"},
				Prepare: func(d, old *appsv1.Deployment) { d.Labels = old.Labels }},
			scale(func(d *appsv1.Deployment) scaled {
				return scaled{&d.Spec.Replicas, d.Spec.Selector, d.Status.Replicas}
			}),
		},
	})
}

func deploymentTemplate(o *appsv1.Deployment) *corev1.PodTemplateSpec {
	if o == nil {
		return nil
	}
	return &o.Spec.Template
}

func deploymentContainers(d *appsv1.Deployment) []corev1.Container {
	return d.Spec.Template.Spec.Containers
}

func defaultDeployment(d *appsv1.Deployment) {
	podspec.DefaultTemplate(&d.Spec.Template)
	defaulting.IfNil(&d.Spec.Replicas, 1)
	defaulting.IfNil(&d.Spec.RevisionHistoryLimit, 10)
	defaulting.IfNil(&d.Spec.ProgressDeadlineSeconds, 600)
	s := &d.Spec.Strategy
	if s.Type == "" {
		s.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Type != appsv1.RollingUpdateDeploymentStrategyType {
		return
	}
	if s.RollingUpdate == nil {
		s.RollingUpdate = &appsv1.RollingUpdateDeployment{}
	}
	defaulting.IfNil(&s.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
	defaulting.IfNil(&s.RollingUpdate.MaxSurge, intstr.FromString("25%"))
}

func prepareDeployment(d, old *appsv1.Deployment) {
	podspec.DropDisabledTemplateFields(&d.Spec.Template, deploymentTemplate(old))
	if d.Annotations[appsv1.DeprecatedRollbackTo] == "" {
		delete(d.Annotations, appsv1.DeprecatedRollbackTo)
	}
}

func warnDeployment(d, old *appsv1.Deployment) []string {
	var warnings []string
	if old == nil {
		warnings = podspec.NameWarnings(d.Name)
	} else if d.Generation == old.Generation {
		return nil
	}
	return append(warnings, podspec.TemplateWarnings(field.NewPath("spec", "template"), &d.Spec.Template, deploymentTemplate(old))...)
}

func validateDeployment(d, old *appsv1.Deployment) field.ErrorList {
	s, path := &d.Spec, field.NewPath("spec")
	errs := check.NonNegative(int64(ptr.Deref(s.Replicas, 0)), path.Child("replicas"))
	errs = append(errs, validateSelected(s.Selector, &s.Template, deploymentTemplate(old), path)...)
	errs = append(errs, validateStrategy(&s.Strategy, path.Child("strategy"))...)
	errs = append(errs, check.NonNegative(int64(s.MinReadySeconds), path.Child("minReadySeconds"))...)
	errs = append(errs, check.NonNegativePtr(s.RevisionHistoryLimit, path.Child("revisionHistoryLimit"))...)
	if revision, err := strconv.ParseInt(d.Annotations[appsv1.DeprecatedRollbackTo], 10, 64); err == nil {
		errs = append(errs, check.NonNegative(revision, path.Child("rollback", "version"))...)
	}
	if p := s.ProgressDeadlineSeconds; p != nil {
		errs = append(errs, check.NonNegative(int64(*p), path.Child("progressDeadlineSeconds"))...)
		if *p <= s.MinReadySeconds {
			errs = append(errs, field.Invalid(path.Child("progressDeadlineSeconds"), *p, "must be greater than minReadySeconds"))
		}
	}
	if old != nil {
		errs = append(errs, check.Immutable(s.Selector, old.Spec.Selector, path.Child("selector"))...)
	}
	return errs
}

func validateStrategy(s *appsv1.DeploymentStrategy, path *field.Path) field.ErrorList {
	rolling := path.Child("rollingUpdate")
	switch {
	case s.Type == appsv1.RecreateDeploymentStrategyType && s.RollingUpdate != nil:
		return field.ErrorList{field.Forbidden(rolling, "may not be specified when strategy `type` is 'Recreate'")}
	case s.Type == appsv1.RecreateDeploymentStrategyType:
		return nil
	case s.Type != appsv1.RollingUpdateDeploymentStrategyType:
		shown := s.DeepCopy()
		if shown.RollingUpdate != nil {
			defaulting.IfNil(&shown.RollingUpdate.MaxUnavailable, intstr.IntOrString{})
			defaulting.IfNil(&shown.RollingUpdate.MaxSurge, intstr.IntOrString{})
		}
		return field.ErrorList{field.NotSupported(path, check.GoFields(shown),
			[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	}
	if s.RollingUpdate == nil {
		return field.ErrorList{field.Required(rolling, "this should be defaulted and never be nil")}
	}
	unavailable, surge := ptr.Deref(s.RollingUpdate.MaxUnavailable, intstr.IntOrString{}), ptr.Deref(s.RollingUpdate.MaxSurge,
		intstr.IntOrString{})
	errs := check.IntOrPercent(unavailable, rolling.Child("maxUnavailable"))
	errs = append(errs, check.IntOrPercent(surge, rolling.Child("maxSurge"))...)
	if intOrPercent(unavailable) == 0 && intOrPercent(surge) == 0 {
		errs = append(errs, field.Invalid(rolling.Child("maxUnavailable"), unavailable, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, check.AtMost100Percent(unavailable, rolling.Child("maxUnavailable"))...)
}

func validateDeploymentStatus(d, old *appsv1.Deployment) field.ErrorList {
	s, path := &d.Status, field.NewPath("status")
	errs := check.NonNegative(s.ObservedGeneration, path.Child("observedGeneration"))
	errs = append(errs, validateNonNegative(path, []namedCount{
		{"replicas", s.Replicas}, {"updatedReplicas", s.UpdatedReplicas}, {"readyReplicas", s.ReadyReplicas},
		{"availableReplicas", s.AvailableReplicas}, {"unavailableReplicas", s.UnavailableReplicas},
	})...)
	errs = append(errs, check.NonNegativePtr(s.TerminatingReplicas, path.Child("terminatingReplicas"))...)
	errs = append(errs, check.NonNegativePtr(s.CollisionCount, path.Child("collisionCount"))...)
	errs = append(errs, validateAtMost(path, s.Replicas, "cannot be greater than status.replicas", []namedCount{
		{"updatedReplicas", s.UpdatedReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas},
	})...)
	errs = append(errs, validateAtMost(path, s.ReadyReplicas, "cannot be greater than readyReplicas",
		[]namedCount{{"availableReplicas", s.AvailableReplicas}})...)
	return append(errs, validateNotDecremented(s.CollisionCount, old.Status.CollisionCount, path.Child("collisionCount"))...)
}
