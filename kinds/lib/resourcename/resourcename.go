// Package resourcename classifies and validates the names of resources that containers ask for and that quotas, limit ranges and
// nodes measure. A name without a slash belongs to Kubernetes and must be known; any other belongs to the domain before the
// slash.
package resourcename

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// countedResources returns the numbers of objects that a quota bounds.
func countedResources() []corev1.ResourceName {
	return []corev1.ResourceName{
		corev1.ResourcePods, corev1.ResourceQuotas, corev1.ResourceServices, corev1.ResourceReplicationControllers,
		corev1.ResourceSecrets, corev1.ResourceConfigMaps, corev1.ResourcePersistentVolumeClaims,
		corev1.ResourceServicesNodePorts, corev1.ResourceServicesLoadBalancers,
	}
}

// IsQuota reports whether a name without a slash is a resource that a quota may bound.
func IsQuota(name corev1.ResourceName) bool {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage,
		corev1.ResourceRequestsCPU, corev1.ResourceRequestsMemory, corev1.ResourceRequestsStorage, corev1.ResourceRequestsEphemeralStorage,
		corev1.ResourceLimitsCPU, corev1.ResourceLimitsMemory, corev1.ResourceLimitsEphemeralStorage:
		return true
	}
	return slices.Contains(countedResources(), name) || IsHugePages(name) ||
		strings.HasPrefix(string(name), corev1.ResourceRequestsHugePagesPrefix)
}

// IsHugePages reports whether a resource is huge pages of some size.
func IsHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsNative reports whether a name belongs to Kubernetes.
func IsNative(name corev1.ResourceName) bool {
	return !strings.Contains(string(name), "/") || strings.Contains(string(name), corev1.ResourceDefaultNamespacePrefix)
}

// IsExtended reports whether a name is an extended resource, advertised by a device plugin or an administrator.
func IsExtended(name corev1.ResourceName) bool {
	return !IsNative(name) && !strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+string(name))) == 0
}

// IsCounted reports whether a resource comes in whole numbers only.
func IsCounted(name corev1.ResourceName) bool {
	return slices.Contains(countedResources(), name) || IsExtended(name)
}

// CanOvercommit reports whether containers may be promised more of a resource than a node has.
func CanOvercommit(name corev1.ResourceName) bool { return IsNative(name) && !IsHugePages(name) }

// Validate checks the name of any resource.
func Validate(name corev1.ResourceName, path *field.Path) field.ErrorList {
	if errs := check.Messages(name, path, validation.IsQualifiedName(string(name))); len(errs) > 0 {
		return errs
	}
	if !strings.Contains(string(name), "/") && !IsQuota(name) && name != corev1.ResourceStorage {
		return field.ErrorList{field.Invalid(path, name, "must be a standard resource type or fully qualified")}
	}
	return nil
}

// ValidateContainer checks the name of a resource that a container may ask for.
func ValidateContainer(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := Validate(name, path)
	switch {
	case !strings.Contains(string(name), "/"):
		if name != corev1.ResourceCPU && name != corev1.ResourceMemory && name != corev1.ResourceEphemeralStorage && !IsHugePages(name) {
			errs = append(errs, field.Invalid(path, name, "must be a standard resource for containers"))
		}
	case !IsNative(name) && !IsExtended(name):
		errs = append(errs, field.Invalid(path, name, "doesn't follow extended resource name standard"))
	}
	return errs
}

// ValidateQuota checks the name of a resource that a quota may bound.
func ValidateQuota(name corev1.ResourceName, path *field.Path) field.ErrorList {
	errs := Validate(name, path)
	if !strings.Contains(string(name), "/") && !IsQuota(name) {
		errs = append(errs, field.Invalid(path, name, "must be a standard resource for quota"))
	}
	return errs
}

// ValidateQuantity checks a quantity of a resource: never negative, and whole where the resource is counted.
func ValidateQuantity(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be greater than or equal to 0"))
	}
	if IsCounted(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q, "must be an integer"))
	}
	return errs
}
