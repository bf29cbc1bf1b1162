package containerspec

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/downwardapi"
	"proa.dev/kinds/lib/check"
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
		errs = append(errs, downwardapi.ValidateFieldRef(s.FieldRef, at.Child("fieldRef"), downwardapi.EnvFields())...)
	}
	if s.ResourceFieldRef != nil {
		sources++
		errs = append(errs, downwardapi.ValidateResourceFieldRef(s.ResourceFieldRef, at.Child("resourceFieldRef"), false)...)
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
	errs := check.DNSSubdomain(name, at.Child("name"))
	if key == "" {
		return append(errs, field.Required(at.Child("key"), ""))
	}
	return append(errs, check.Messages(key, at.Child("key"), validation.IsConfigMapKey(key))...)
}

func validateFileKeyRef(r *corev1.FileKeySelector, at *field.Path) field.ErrorList {
	errs := check.Required(r.Key, at.Child("key"))
	if r.Key != "" {
		errs = check.Messages(r.Key, at.Child("key"), validation.IsRelaxedEnvVarName(r.Key))
	}
	errs = append(errs, check.RequiredDNSLabel(r.VolumeName, at.Child("volumeName"))...)
	if r.Path == "" {
		return append(errs, field.Required(at.Child("path"), ""))
	}
	return append(errs, check.NoBacksteps(r.Path, at.Child("path"))...)
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
