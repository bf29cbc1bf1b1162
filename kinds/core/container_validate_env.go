package core

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

func validateEnv(vars []corev1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range vars {
		v, at := &vars[i], at.Index(i)
		if v.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
		} else {
			errs = append(errs, check.Messages(v.Name, at.Child("name"), validation.IsRelaxedEnvVarName(v.Name))...)
		}
		if v.ValueFrom != nil {
			errs = append(errs, validateEnvSource(v, at.Child("valueFrom"))...)
		}
	}
	return errs
}

func validateEnvSource(v *corev1.EnvVar, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources, s := 0, v.ValueFrom
	if s.FieldRef != nil {
		sources++
		errs = append(errs, validateFieldRef(s.FieldRef, at.Child("fieldRef"), envFieldPaths())...)
	}
	if s.ResourceFieldRef != nil {
		sources++
		errs = append(errs, validateResourceFieldRef(s.ResourceFieldRef, at.Child("resourceFieldRef"), false)...)
	}
	if r := s.ConfigMapKeyRef; r != nil {
		sources++
		errs = append(errs, validateKeyRef(r.Name, r.Key, at.Child("configMapKeyRef"))...)
	}
	if r := s.SecretKeyRef; r != nil {
		sources++
		errs = append(errs, validateKeyRef(r.Name, r.Key, at.Child("secretKeyRef"))...)
	}
	if s.FileKeyRef != nil {
		sources++
		errs = append(errs, validateFileKeyRef(s.FileKeyRef, at.Child("fileKeyRef"))...)
	}
	switch {
	case sources == 0:
		errs = append(errs, field.Invalid(at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"))
	case v.Value != "":
		errs = append(errs, field.Invalid(at, "", "may not be specified when `value` is not empty"))
	case sources > 1:
		errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
	}
	return errs
}

func validateKeyRef(name, key string, at *field.Path) field.ErrorList {
	errs := dnsName(name, at.Child("name"))
	if key == "" {
		return append(errs, field.Required(at.Child("key"), ""))
	}
	return append(errs, check.Messages(key, at.Child("key"), validation.IsConfigMapKey(key))...)
}

func validateFileKeyRef(r *corev1.FileKeySelector, at *field.Path) field.ErrorList {
	errs := required(r.Key, at.Child("key"))
	if r.Key != "" {
		errs = check.Messages(r.Key, at.Child("key"), validation.IsRelaxedEnvVarName(r.Key))
	}
	errs = append(errs, requiredDNSLabel(r.VolumeName, at.Child("volumeName"))...)
	if r.Path == "" {
		return append(errs, field.Required(at.Child("path"), ""))
	}
	return append(errs, noBacksteps(r.Path, at.Child("path"))...)
}

func validateEnvFrom(list []corev1.EnvFromSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		s, in := &list[i], at.Index(i)
		if s.Prefix != "" {
			errs = append(errs, check.Messages(s.Prefix, in.Child("prefix"), validation.IsRelaxedEnvVarName(s.Prefix))...)
		}
		sources := 0
		if s.ConfigMapRef != nil {
			sources++
			errs = append(errs, validateEnvRef(s.ConfigMapRef.Name, in.Child("configMapRef", "name"))...)
		}
		if s.SecretRef != nil {
			sources++
			errs = append(errs, validateEnvRef(s.SecretRef.Name, in.Child("secretRef", "name"))...)
		}
		switch {
		case sources == 0:
			errs = append(errs, field.Invalid(at, "", "must specify one of: `configMapRef` or `secretRef`"))
		case sources > 1:
			errs = append(errs, field.Invalid(at, "", "may not have more than one field specified at a time"))
		}
	}
	return errs
}

func validateEnvRef(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return check.Messages(name, at, apivalidation.NameIsDNSSubdomain(name, true))
}

// The fields of a pod that its containers may read, in variables and in files, as errors list them.
func envFieldPaths() []string {
	return []string{"metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
		"status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}
}

func volumeFieldPaths() []string {
	return []string{"metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"}
}

// readableFields are all the fields that some reader of the pod's own fields knows.
func readableFields() []string {
	return append(append(envFieldPaths(), volumeFieldPaths()...), "spec.restartPolicy", "spec.schedulerName", "status.phase", "spec.host")
}

func validateFieldRef(r *corev1.ObjectFieldSelector, at *field.Path, paths []string) field.ErrorList {
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
			return qualifiedName(strings.ToLower(key), at)
		case "metadata.labels":
			return qualifiedName(key, at)
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
	return oneOf(path, at.Child("fieldPath"), paths...)
}

// subscript splits metadata.labels['key'] into its two parts.
func subscript(path string) (field, key string, ok bool) {
	body, ok := strings.CutSuffix(path, "']")
	if !ok {
		return path, "", false
	}
	field, key, ok = strings.Cut(body, "['")
	if !ok || field == "" {
		return path, "", false
	}
	return field, key, true
}

// divisors are the units in which a resource may be read.
func divisors() []string {
	return []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
}

func validateResourceFieldRef(r *corev1.ResourceFieldSelector, at *field.Path, volume bool) field.ErrorList {
	var errs field.ErrorList
	huge := strings.HasPrefix(r.Resource, "requests.hugepages-") || strings.HasPrefix(r.Resource, "limits.hugepages-")
	switch {
	case volume && r.ContainerName == "":
		errs = append(errs, field.Required(at.Child("containerName"), ""))
	case r.Resource == "":
		errs = append(errs, field.Required(at.Child("resource"), ""))
	case !huge:
		errs = append(errs, oneOf(r.Resource, at.Child("resource"), "limits.cpu", "limits.ephemeral-storage", "limits.memory",
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
		errs = append(errs, field.Invalid(at.Child("divisor"), r.Resource, fmt.Sprintf("only divisor's values %s are supported with the %s resource", list, what)))
	}
	return errs
}
