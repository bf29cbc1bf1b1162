package core

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// PodTemplates keep a template of pods for later.
func PodTemplates() *kind.Def {
	containers := func(t *corev1.PodTemplate) []corev1.Container { return t.Template.Spec.Containers }
	names, images := kind.ContainersColumn(containers), kind.ImagesColumn(containers)
	names.Wide, images.Wide = false, false
	return kind.Define(kind.Resource[corev1.PodTemplate]{
		Version: "v1", Kind: "PodTemplate", Plural: "podtemplates",
		Spec:       func(t *corev1.PodTemplate) any { return &t.Template },
		Generation: true,
		Default:    func(t *corev1.PodTemplate) { DefaultPodTemplate(&t.Template) },
		Prepare: func(t, old *corev1.PodTemplate) {
			DropDisabledTemplateFields(&t.Template, templateOf(old))
		},
		Validate: func(t, old *corev1.PodTemplate) field.ErrorList {
			return ValidatePodTemplateSpec(&t.Template, field.NewPath("template"), AllowTemplate(templateOf(old)))
		},
		Warn: func(t, old *corev1.PodTemplate) []string {
			if old != nil && old.Generation == t.Generation {
				return nil
			}
			return PodTemplateWarnings(field.NewPath("template"), &t.Template, templateOf(old))
		},
		Columns: []kind.Column[corev1.PodTemplate]{
			kind.NameColumn[corev1.PodTemplate](), names, images,
			{Name: "Pod Labels", Description: "The labels for the pod template.", Value: func(t *corev1.PodTemplate) any {
				return labels.FormatLabels(t.Template.Labels)
			}},
		},
		Delete: kind.Deletion[corev1.PodTemplate]{Returns: true},
	})
}

func templateOf(t *corev1.PodTemplate) *corev1.PodTemplateSpec {
	if t == nil {
		return nil
	}
	return &t.Template
}
