package volumesource

import (
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// ValidateClaimSpec checks the spec of a claim or claim template.
func ValidateClaimSpec(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	if s.Selector != nil {
		errs = append(errs, metavalidation.ValidateLabelSelector(s.Selector, metavalidation.LabelSelectorValidationOptions{},
			at.Child("selector"))...)
	}
	once, other := false, false
	for _, mode := range s.AccessModes {
		bad := check.OneOf(mode, at.Child("accessModes"), corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce,
			corev1.ReadWriteOncePod)
		errs = append(errs, bad...)
		once = once || mode == corev1.ReadWriteOncePod
		other = other || mode != corev1.ReadWriteOncePod && len(bad) == 0
	}
	if once && other {
		errs = append(errs, field.Forbidden(at.Child("accessModes"), "may not use ReadWriteOncePod with other access modes"))
	}
	storage := at.Child("resources").Key(string(corev1.ResourceStorage))
	if size, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(storage, ""))
	} else if size.Cmp(resource.Quantity{}) <= 0 {
		errs = append(errs, field.Invalid(storage, size.String(), "must be greater than zero"))
	}
	if c := s.StorageClassName; c != nil && *c != "" {
		errs = append(errs, check.DNSSubdomain(*c, at.Child("storageClassName"))...)
	}
	errs = append(errs, check.OneOfIfSet(s.VolumeMode, at.Child("volumeMode"), corev1.PersistentVolumeBlock,
		corev1.PersistentVolumeFilesystem)...)
	errs = append(errs, validateDataSources(s, at)...)
	if c := s.VolumeAttributesClassName; c != nil && *c != "" {
		errs = append(errs, check.DNSSubdomain(*c, at.Child("volumeAttributesClassName"))...)
	}
	return errs
}

// validateDataSources checks the data sources of a claim.
func validateDataSources(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	source, ref := s.DataSource, s.DataSourceRef
	if source != nil {
		errs = append(errs, validateDataSource(source.APIGroup, source.Kind, source.Name, at.Child("dataSource"))...)
	}
	foreign := false
	if ref != nil {
		errs = append(errs, validateDataSource(ref.APIGroup, ref.Kind, ref.Name, at.Child("dataSourceRef"))...)
		if ref.Namespace != nil && *ref.Namespace != "" {
			foreign = true
			errs = append(errs, check.Messages(*ref.Namespace, at.Child("dataSourceRef", "namespace"),
				apivalidation.ValidateNamespaceName(*ref.Namespace, false))...)
		}
	}
	if source == nil || ref == nil {
		return errs
	}
	if foreign {
		return append(errs, field.Invalid(at, at.Child("dataSource"), "may not be specified when dataSourceRef.namespace is specified"))
	}
	if !reflect.DeepEqual(source.APIGroup, ref.APIGroup) || source.Kind != ref.Kind || source.Name != ref.Name {
		errs = append(errs, field.Invalid(at, at.Child("dataSource"), "must match dataSourceRef"))
	}
	return errs
}

func validateDataSource(group *string, kind, name string, at *field.Path) field.ErrorList {
	errs := check.Required(name, at.Child("name"))
	errs = append(errs, check.Required(kind, at.Child("kind"))...)
	if group == nil || *group == "" {
		if kind != "PersistentVolumeClaim" {
			errs = append(errs, field.Invalid(at, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
		}
		return errs
	}
	return append(errs, check.DNSSubdomain(*group, at.Child("apiGroup"))...)
}

// ClaimSpecWarnings returns the warnings about a claim or claim template.
func ClaimSpecWarnings(path *field.Path, s *corev1.PersistentVolumeClaimSpec) []string {
	var warnings []string
	for _, part := range []struct {
		name string
		list corev1.ResourceList
	}{{"requests", s.Resources.Requests}, {"limits", s.Resources.Limits}} {
		if size := part.list[corev1.ResourceStorage]; size.MilliValue()%1000 != 0 {
			warnings = append(warnings, fmt.Sprintf("%s: fractional byte value %q is invalid, must be an integer",
				path.Child("resources", part.name).Key(string(corev1.ResourceStorage)), size.String()))
		}
	}
	return warnings
}
