package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/podspec"
	"proa.dev/kinds/kind"
)

// PodTemplates store pod templates for later use.
func PodTemplates() *kind.Def {
	containers := func(t *corev1.PodTemplate) []corev1.Container { return t.Template.Spec.Containers }
	names, images := kind.ContainersColumn(containers), kind.ImagesColumn(containers)
	names.Wide, images.Wide = false, false
	return kind.Define(kind.Resource[corev1.PodTemplate]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "PodTemplate"}, Plural: "podtemplates",
			Generation: true,
		},
		Spec:    func(t *corev1.PodTemplate) any { return &t.Template },
		Default: func(t *corev1.PodTemplate) { podspec.DefaultTemplate(&t.Template) },
		Prepare: func(t, old *corev1.PodTemplate) {
			podspec.DropDisabledTemplateFields(&t.Template, templateOf(old))
		},
		Validate: func(t, old *corev1.PodTemplate) field.ErrorList {
			return podspec.ValidateTemplate(&t.Template, field.NewPath("template"), podspec.TemplateAllowances(templateOf(old)))
		},
		Warn: func(t, old *corev1.PodTemplate) []string {
			if old != nil && old.Generation == t.Generation {
				return nil
			}
			return podspec.TemplateWarnings(field.NewPath("template"), &t.Template, templateOf(old))
		},
		Columns: []kind.Column[corev1.PodTemplate]{
			kind.NameColumn[corev1.PodTemplate](), names, images,
			{Name: "Pod Labels", Description: "The labels for the pod template.", Value: func(t *corev1.PodTemplate) any {
				return labels.FormatLabels(t.Template.Labels)
			}},
		},
		Delete: kind.Deletion[corev1.PodTemplate]{ReturnsObject: true},
	})
}

func templateOf(t *corev1.PodTemplate) *corev1.PodTemplateSpec {
	if t == nil {
		return nil
	}
	return &t.Template
}
