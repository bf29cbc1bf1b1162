package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// maxDataSize bounds what one ConfigMap or Secret may carry.
const maxDataSize = 1 << 20

// ConfigMaps hold configuration for pods.
func ConfigMaps() *kind.Def {
	return kind.Define(kind.Resource[corev1.ConfigMap]{
		Version: "v1", Kind: "ConfigMap", Plural: "configmaps", Short: []string{"cm"},
		Validate: validateConfigMap,
		Columns: []kind.Column[corev1.ConfigMap]{
			kind.NameColumn[corev1.ConfigMap](),
			{Name: "Data", Type: "string", Description: corev1.ConfigMap{}.SwaggerDoc()["data"], Value: func(c *corev1.ConfigMap) any {
				return int64(len(c.Data) + len(c.BinaryData))
			}},
			kind.AgeColumn[corev1.ConfigMap](),
		},
	})
}

func validateConfigMap(c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	if old != nil && old.Immutable != nil && *old.Immutable {
		const text = "field is immutable when `immutable` is set"
		if c.Immutable == nil || !*c.Immutable {
			errs = append(errs, field.Forbidden(field.NewPath("immutable"), text))
		}
		if !equality.Semantic.DeepEqual(c.Data, old.Data) {
			errs = append(errs, field.Forbidden(field.NewPath("data"), text))
		}
		if !equality.Semantic.DeepEqual(c.BinaryData, old.BinaryData) {
			errs = append(errs, field.Forbidden(field.NewPath("binaryData"), text))
		}
	}
	size := 0
	for key, value := range c.Data {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, msg))
		}
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(field.NewPath("data").Key(key), key, fmt.Sprintf("duplicate of key present in %s", field.NewPath("binaryData"))))
		}
		size += len(value)
	}
	for key, value := range c.BinaryData {
		for _, msg := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("binaryData").Key(key), key, msg))
		}
		size += len(value)
	}
	if size > maxDataSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxDataSize))
	}
	return errs
}
