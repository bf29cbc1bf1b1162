package core

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// maxDataSize bounds the data of one ConfigMap or Secret, in bytes.
const maxDataSize = 1 << 20

// ConfigMaps hold configuration for pods.
func ConfigMaps() *kind.Def {
	return kind.Define(kind.Resource[corev1.ConfigMap]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}, Plural: "configmaps", Short: []string{"cm"},
		},
		Default: func(c *corev1.ConfigMap) {
			if c.Data == nil {
				c.Data = map[string]string{}
			}
		},
		Validate: validateConfigMap,
		Columns: []kind.Column[corev1.ConfigMap]{
			kind.NameColumn[corev1.ConfigMap](),
			{Name: "Data", Description: corev1.ConfigMap{}.SwaggerDoc()["data"], Value: func(c *corev1.ConfigMap) any {
				return int64(len(c.Data) + len(c.BinaryData))
			}},
			kind.AgeColumn[corev1.ConfigMap](),
		},
	})
}

func validateConfigMap(c, old *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	data, binary := field.NewPath("data"), field.NewPath("binaryData")
	if old != nil && ptr.Deref(old.Immutable, false) {
		errs = append(errs, validateSealed(field.NewPath("immutable"), ptr.Deref(c.Immutable, false))...)
		errs = append(errs, validateSealed(data, equality.Semantic.DeepEqual(c.Data, old.Data))...)
		errs = append(errs, validateSealed(binary, equality.Semantic.DeepEqual(c.BinaryData, old.BinaryData))...)
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(c.Data)) {
		errs = append(errs, check.Messages(key, data.Key(key), validation.IsConfigMapKey(key))...)
		if _, twice := c.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(data.Key(key), key, "duplicate of key present in binaryData"))
		}
		size += len(c.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(c.BinaryData)) {
		errs = append(errs, check.Messages(key, binary.Key(key), validation.IsConfigMapKey(key))...)
		size += len(c.BinaryData[key])
	}
	if size > maxDataSize {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxDataSize))
	}
	return errs
}

// validateSealed returns an error for a change of an object that is marked immutable.
func validateSealed(path *field.Path, same bool) field.ErrorList {
	if same {
		return nil
	}
	return field.ErrorList{field.Forbidden(path, "field is immutable when `immutable` is set")}
}
