package storage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/lib/check"
)

// The bounds of the parameters of a storage class.
const (
	maxParameters     = 512
	maxParametersSize = 256 << 10
)

func validateStorageClass(c, old *storagev1.StorageClass) field.ErrorList {
	errs := validateProvisioner(c.Provisioner, field.NewPath("provisioner"))
	errs = append(errs, validateParameters(c.Parameters, true)...)
	policies := []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete, corev1.PersistentVolumeReclaimRetain}
	if p := c.ReclaimPolicy; p != nil && *p != "" && !slices.Contains(policies, *p) {
		errs = append(errs, field.NotSupported(field.NewPath("reclaimPolicy"), *p, policies))
	}
	modes := []storagev1.VolumeBindingMode{storagev1.VolumeBindingImmediate, storagev1.VolumeBindingWaitForFirstConsumer}
	if m := c.VolumeBindingMode; m == nil {
		errs = append(errs, field.Required(field.NewPath("volumeBindingMode"), ""))
	} else if !slices.Contains(modes, *m) {
		errs = append(errs, field.NotSupported(field.NewPath("volumeBindingMode"), *m, modes))
	}
	errs = append(errs, validateTopologies(c.AllowedTopologies, field.NewPath("allowedTopologies"))...)
	if c.Provisioner == "" {
		errs = append(errs, field.Required(field.NewPath("provisioner"), ""))
	}
	if old == nil {
		return errs
	}
	for _, f := range []struct {
		name    string
		changed bool
	}{
		{"provisioner", c.Provisioner != old.Provisioner},
		{"parameters", !maps.Equal(c.Parameters, old.Parameters)},
		{"reclaimPolicy", ptr.Deref(c.ReclaimPolicy, "") != ptr.Deref(old.ReclaimPolicy, "")},
		{"volumeBindingMode", ptr.Deref(c.VolumeBindingMode, "") != ptr.Deref(old.VolumeBindingMode, "")},
	} {
		if f.changed {
			errs = append(errs, check.ImmutableError(field.NewPath(f.name)))
		}
	}
	return errs
}

// validateProvisioner accepts an empty name, which the caller refuses.
func validateProvisioner(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return nil
	}
	lower := strings.ToLower(name)
	return check.QualifiedName(lower, path)
}

func validateParameters(parameters map[string]string, optional bool) field.ErrorList {
	path := field.NewPath("parameters")
	if len(parameters) > maxParameters {
		return field.ErrorList{field.TooLong(path, "", maxParameters)}
	}
	var errs field.ErrorList
	size := 0
	for key, value := range parameters {
		if key == "" {
			errs = append(errs, field.Invalid(path, key, "field can not be empty."))
		}
		size += len(key) + len(value)
	}
	if size > maxParametersSize {
		errs = append(errs, field.TooLong(path, "", maxParametersSize))
	}
	if !optional && len(parameters) == 0 {
		errs = append(errs, field.Required(path, "must contain at least one key/value pair"))
	}
	return errs
}

func validateTopologies(terms []corev1.TopologySelectorTerm, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	// As upstream, the list begins with as many empty terms as there are, so that an empty term is a duplicate.
	seen := make([]map[string]string, len(terms))
	for i, term := range terms {
		keys := map[string]string{}
		at := path.Index(i).Child("matchLabelExpressions")
		for j, r := range term.MatchLabelExpressions {
			values, more := validateTopologyValues(r, at.Index(j))
			errs = append(errs, more...)
			if _, twice := keys[r.Key]; twice {
				errs = append(errs, field.Duplicate(at.Index(j).Child("key"), r.Key))
			}
			keys[r.Key] = values
		}
		for _, other := range seen {
			if maps.Equal(keys, other) {
				errs = append(errs, field.Duplicate(at, ""))
			}
		}
		seen = append(seen, keys)
	}
	return errs
}

// validateTopologyValues returns the values as a text that can be compared.
func validateTopologyValues(r corev1.TopologySelectorLabelRequirement, path *field.Path) (string, field.ErrorList) {
	var errs field.ErrorList
	if len(r.Values) == 0 {
		errs = append(errs, field.Required(path.Child("values"), ""))
	}
	var set []string
	for i, v := range r.Values {
		if slices.Contains(set, v) {
			errs = append(errs, field.Duplicate(path.Child("values").Index(i), v))
			continue
		}
		set = append(set, v)
	}
	slices.Sort(set)
	return strings.Join(set, "\x00"), append(errs, metav1validation.ValidateLabelName(r.Key, path.Child("key"))...)
}

func warnStorageClass(c, _ *storagev1.StorageClass) []string {
	var warnings []string
	for i, term := range c.AllowedTopologies {
		for j, r := range term.MatchLabelExpressions {
			if text, old := podplacement.DeprecatedNodeLabel(r.Key); old {
				warnings = append(warnings, fmt.Sprintf("%s: %s",
					field.NewPath("allowedTopologies").Index(i).Child("matchLabelExpressions").Index(j).Child("key"), text))
			}
		}
	}
	return warnings
}

func validateVolumeAttributesClass(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	var errs field.ErrorList
	if old != nil && c.DriverName != old.DriverName {
		errs = append(errs, field.Forbidden(field.NewPath("driverName"), "updates to driverName are forbidden."))
	}
	if old != nil && !maps.Equal(c.Parameters, old.Parameters) {
		errs = append(errs, field.Forbidden(field.NewPath("parameters"), "updates to parameters are forbidden."))
	}
	if c.DriverName == "" {
		errs = append(errs, field.Required(field.NewPath("driverName"), ""))
	}
	errs = append(errs, validateProvisioner(c.DriverName, field.NewPath("driverName"))...)
	return append(errs, validateParameters(c.Parameters, false)...)
}
