// Package downwardapi validates references to the pod's own fields and resources, which containers read as environment variables or
// as files in a volume.
package downwardapi

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
)

// ValidateFieldRef checks a reference to a field of the Pod, which must be one of paths.
func ValidateFieldRef(r *corev1.ObjectFieldSelector, at *field.Path, paths []string) field.ErrorList {
	if r.APIVersion == "" {
		return field.ErrorList{field.Required(at.Child("apiVersion"), "")}
	}
	if r.FieldPath == "" {
		return field.ErrorList{field.Required(at.Child("fieldPath"), "")}
	}
	wrong := func(format, value string) field.ErrorList {
		return field.ErrorList{field.Invalid(at.Child("fieldPath"), r.FieldPath, "error converting fieldPath: "+fmt.Sprintf(format, value))}
	}
	if r.APIVersion != "v1" {
		return wrong("unsupported pod version: %s", r.APIVersion)
	}
	if path, key, ok := subscript(r.FieldPath); ok {
		switch path {
		case "metadata.annotations":
			return check.QualifiedName(strings.ToLower(key), at)
		case "metadata.labels":
			return check.QualifiedName(key, at)
		}
		return wrong("field label does not support subscript: %s", r.FieldPath)
	}
	if !slices.Contains(readableFields(), r.FieldPath) {
		return wrong("field label not supported: %s", r.FieldPath)
	}
	path := r.FieldPath
	if path == "spec.host" {
		path = "spec.nodeName" // its name in the first versions of the API
	}
	return check.OneOf(path, at.Child("fieldPath"), paths...)
}

// subscript splits metadata.labels['key'] into its two parts.
func subscript(path string) (parent, key string, ok bool) {
	body, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	parent, key, ok = strings.Cut(body, "['")
	if !ok || parent == "" {
		return path, "", false
	}
	return parent, key, true
}

// readableFields returns the fields that environment variables, volumes or older versions of them can refer to.
func readableFields() []string {
	return append(append(EnvFields(), VolumeFields()...), "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host")
}

// EnvFields returns the fields of a pod that environment variables may refer to, in the order in which errors list
// them.
func EnvFields() []string {
	return []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
}

// VolumeFields returns the fields of a pod that files in a volume may refer to, besides single labels and
// annotations.
func VolumeFields() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// divisors returns the units in which a resource may be expressed.
func divisors() []string {
	return []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
}

// ValidateResourceFieldRef checks a reference to a resource of a container. In a volume it must name the container.
func ValidateResourceFieldRef(r *corev1.ResourceFieldSelector, at *field.Path, volume bool) field.ErrorList {
	var errs field.ErrorList
	huge := strings.HasPrefix(r.Resource, "requests.hugepages-") || strings.HasPrefix(r.Resource, "limits.hugepages-")
	switch {
	case volume && r.ContainerName == "":
		errs = append(errs, field.Required(at.Child("containerName"), ""))
	case r.Resource == "":
		errs = append(errs, field.Required(at.Child("resource"), ""))
	case !huge:
		errs = append(errs, check.OneOf(r.Resource, at.Child("resource"), "limits.cpu", "limits.ephemeral-storage", "limits.memory",
			"requests.cpu", "requests.ephemeral-storage", "requests.memory")...)
	}
	if r.Divisor.Cmp(resource.Quantity{}) == 0 {
		return errs
	}
	units, what := divisors(), ""
	switch _, name, _ := strings.Cut(r.Resource, "."); {
	case name == "cpu":
		units, what = []string{"1m", "1"}, "cpu"
	case name == "memory":
		what = "memory"
	case name == "ephemeral-storage":
		what = "local ephemeral storage"
	case huge:
		what = "hugepages"
	default:
		return errs
	}
	if !slices.Contains(units, r.Divisor.String()) {
		list := strings.Join(units, ", ")
		if what == "cpu" {
			list = "1m and 1"
		}
		errs = append(errs, field.Invalid(at.Child("divisor"), r.Resource,
			fmt.Sprintf("only divisor's values %s are supported with the %s resource", list, what)))
	}
	return errs
}

// DefaultFieldRef sets the defaults of a reference to a field of the Pod.
func DefaultFieldRef(r *corev1.ObjectFieldSelector) {
	if r != nil {
		defaulting.IfZero(&r.APIVersion, "v1")
	}
}
