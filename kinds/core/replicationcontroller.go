package core

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
)

// ReplicationControllers keep a number of equal pods running. Replica sets have replaced them.
func ReplicationControllers() *kind.Def {
	type controller = corev1.ReplicationController
	spec, status := corev1.ReplicationControllerSpec{}.SwaggerDoc(), corev1.ReplicationControllerStatus{}.SwaggerDoc()
	containers := func(c *controller) []corev1.Container {
		if c.Spec.Template == nil {
			return nil
		}
		return c.Spec.Template.Spec.Containers
	}
	return kind.Define(kind.Resource[controller]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ReplicationController"}, Plural: "replicationcontrollers",
			Short: []string{"rc"}, Categories: []string{"all"},
			StorageFolder: "controllers",
			Generation:    true,
		},
		Spec:    func(c *controller) any { return &c.Spec },
		Status:  func(c *controller) any { return &c.Status },
		Name:    check.LongName,
		Default: defaultReplicationController,
		Prepare: func(c, old *controller) {
			var was *corev1.PodTemplateSpec
			if old != nil {
				was = old.Spec.Template
			}
			podspec.DropDisabledTemplateFields(c.Spec.Template, was)
		},
		Validate: validateReplicationController,
		Warn:     warnReplicationController,
		Ready: func(r *controller) bool {
			s, want := &r.Status, ptr.Deref(r.Spec.Replicas, 1)
			return s.ObservedGeneration == r.Generation && s.Replicas == want && s.AvailableReplicas == want
		},
		Columns: []kind.Column[controller]{
			kind.NameColumn[controller](),
			{Name: "Desired", Type: "integer", Description: spec["replicas"],
				Value: func(c *controller) any { return int64(ptr.Deref(c.Spec.Replicas, 0)) }},
			{Name: "Current", Type: "integer", Description: status["replicas"],
				Value: func(c *controller) any { return int64(c.Status.Replicas) }},
			{Name: "Ready", Type: "integer", Description: status["readyReplicas"],
				Value: func(c *controller) any { return int64(c.Status.ReadyReplicas) }},
			kind.AgeColumn[controller](),
			kind.ContainersColumn(containers),
			kind.ImagesColumn(containers),
			{Name: "Selector", Wide: true, Description: spec["selector"],
				Value: func(c *controller) any { return labels.FormatLabels(c.Spec.Selector) }},
		},
		Fields: map[string]func(*controller) string{
			"status.replicas": func(c *controller) string { return strconv.Itoa(int(c.Status.Replicas)) },
		},
		Subs: []kind.Sub[controller]{
			{Name: "status", Validate: validateReplicationControllerStatus},
			Scale(Scaled[controller]{
				Replicas: func(c *controller) **int32 { return &c.Spec.Replicas },
				Current:  func(c *controller) int32 { return c.Status.Replicas },
				Selector: func(c *controller) (string, error) { return labels.SelectorFromSet(c.Spec.Selector).String(), nil },
			}),
		},
		Delete: kind.Deletion[controller]{Propagation: metav1.DeletePropagationOrphan},
	})
}

func defaultReplicationController(c *corev1.ReplicationController) {
	defaulting.IfNil(&c.Spec.Replicas, 1)
	t := c.Spec.Template
	if t == nil {
		return
	}
	podspec.DefaultTemplate(t)
	if t.Labels == nil {
		return
	}
	if len(c.Spec.Selector) == 0 {
		c.Spec.Selector = maps.Clone(t.Labels)
	}
	if len(c.Labels) == 0 {
		c.Labels = maps.Clone(t.Labels)
	}
}

func validateReplicationController(c, old *corev1.ReplicationController) field.ErrorList {
	spec := field.NewPath("spec")
	var allow podspec.Allowances
	if old != nil {
		allow = podspec.TemplateAllowances(old.Spec.Template)
	}
	var errs field.ErrorList
	selector := labels.Set(c.Spec.Selector).AsSelector()
	if selector.Empty() {
		errs = append(errs, field.Required(spec.Child("selector"), ""))
	}
	errs = append(errs, podspec.ValidateReplicaTemplate(c.Spec.Template, selector, spec.Child("template"), "ReplicationController",
		allow)...)
	if old != nil {
		errs = append(errs, validateNonConvertible(c, old)...)
	}
	if c.Spec.Replicas == nil {
		errs = append(errs, field.Required(spec.Child("replicas"), ""))
	}
	errs = append(errs, check.NonNegativePtr(c.Spec.Replicas, spec.Child("replicas"))...)
	return append(errs, check.NonNegative(int64(c.Spec.MinReadySeconds), spec.Child("minReadySeconds"))...)
}

// validateNonConvertible refuses changes of fields that an older version of the API could not express.
func validateNonConvertible(c, old *corev1.ReplicationController) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(old.Annotations)) {
		rest, ok := strings.CutPrefix(key, "non-convertible.kubernetes.io")
		_, part, found := strings.Cut(rest, "/")
		if !ok || !found || strings.Contains(part, "/") {
			continue
		}
		if !strings.Contains(part, "selector") {
			errs = append(errs, &field.Error{Type: field.ErrorTypeNotFound, BadValue: old.Annotations[key], Field: part,
				Detail: "unknown non-convertible field"})
		} else if !equality.Semantic.DeepEqual(old.Spec.Selector, c.Spec.Selector) {
			errs = append(errs, field.Invalid(field.NewPath("spec", "selector"), c.Spec.Selector, "cannot update non-convertible selector"))
		}
	}
	return errs
}

func warnReplicationController(c, old *corev1.ReplicationController) []string {
	template := field.NewPath("spec", "template")
	if old != nil {
		if old.Generation == c.Generation {
			return nil
		}
		return podspec.TemplateWarnings(template, old.Spec.Template, c.Spec.Template) // the old template, as upstream does
	}
	return append(podspec.NameWarnings(c.Name), podspec.TemplateWarnings(template, c.Spec.Template, nil)...)
}

func validateReplicationControllerStatus(c, _ *corev1.ReplicationController) field.ErrorList {
	s, at := &c.Status, field.NewPath("status")
	errs := check.NonNegative(int64(s.Replicas), at.Child("replicas"))
	errs = append(errs, check.NonNegative(int64(s.FullyLabeledReplicas), at.Child("fullyLabeledReplicas"))...)
	errs = append(errs, check.NonNegative(int64(s.ReadyReplicas), at.Child("readyReplicas"))...)
	errs = append(errs, check.NonNegative(int64(s.AvailableReplicas), at.Child("availableReplicas"))...)
	errs = append(errs, check.NonNegative(s.ObservedGeneration, at.Child("observedGeneration"))...)
	most := func(n, limit int32, name, text string) {
		if n > limit {
			errs = append(errs, field.Invalid(at.Child(name), n, text))
		}
	}
	most(s.FullyLabeledReplicas, s.Replicas, "fullyLabeledReplicas", "cannot be greater than status.replicas")
	most(s.ReadyReplicas, s.Replicas, "readyReplicas", "cannot be greater than status.replicas")
	most(s.AvailableReplicas, s.Replicas, "availableReplicas", "cannot be greater than status.replicas")
	most(s.AvailableReplicas, s.ReadyReplicas, "availableReplicas", "cannot be greater than readyReplicas")
	return errs
}
