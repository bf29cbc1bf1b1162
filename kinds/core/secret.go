package core

import (
	"crypto/tls"
	"encoding/json"
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
	"proa.dev/kinds/lib/defaulting"
)

// Secrets hold confidential data.
func Secrets() *kind.Def {
	return kind.Define(kind.Resource[corev1.Secret]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Secret"}, Plural: "secrets", Confidential: true,
		},
		Default:  defaultSecret,
		Validate: validateSecret,
		Warn:     func(s, _ *corev1.Secret) []string { return secretWarnings(s) },
		Columns: []kind.Column[corev1.Secret]{
			kind.NameColumn[corev1.Secret](),
			{Name: "Type", Description: corev1.Secret{}.SwaggerDoc()["type"], Value: func(s *corev1.Secret) any { return string(s.Type) }},
			{Name: "Data", Description: corev1.Secret{}.SwaggerDoc()["data"],
				Value: func(s *corev1.Secret) any { return int64(len(s.Data)) }},
			kind.AgeColumn[corev1.Secret](),
		},
		Fields: map[string]func(*corev1.Secret) string{"type": func(s *corev1.Secret) string { return string(s.Type) }},
	})
}

// defaultSecret merges stringData, which is write-only, into data.
func defaultSecret(s *corev1.Secret) {
	defaulting.IfZero(&s.Type, corev1.SecretTypeOpaque)
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for key, text := range s.StringData {
		s.Data[key] = []byte(text)
	}
	s.StringData = nil
}

func validateSecret(s, old *corev1.Secret) field.ErrorList {
	var errs field.ErrorList
	data := field.NewPath("data")
	if old != nil {
		errs = append(errs, check.Immutable(s.Type, old.Type, field.NewPath("type"))...)
		if ptr.Deref(old.Immutable, false) {
			errs = append(errs, validateSealed(field.NewPath("immutable"), ptr.Deref(s.Immutable, false))...)
			errs = append(errs, validateSealed(data, equality.Semantic.DeepEqual(s.Data, old.Data))...)
		}
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(s.Data)) {
		errs = append(errs, check.Messages(key, data.Key(key), validation.IsConfigMapKey(key))...)
		size += len(s.Data[key])
	}
	if size > maxDataSize {
		errs = append(errs, field.TooLong(data, "", maxDataSize))
	}
	return append(errs, validateSecretType(s, data)...)
}

// validateSecretType checks that a secret of a well-known type has the keys of that type.
func validateSecretType(s *corev1.Secret, data *field.Path) field.ErrorList {
	has := func(key string) bool { _, ok := s.Data[key]; return ok }
	missing := func(keys ...string) (errs field.ErrorList) {
		for _, key := range keys {
			if !has(key) {
				errs = append(errs, field.Required(data.Key(key), ""))
			}
		}
		return errs
	}
	switch s.Type {
	case corev1.SecretTypeServiceAccountToken:
		if s.Annotations[corev1.ServiceAccountNameKey] == "" {
			return field.ErrorList{field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), "")}
		}
	case corev1.SecretTypeDockercfg:
		return append(missing(corev1.DockerConfigKey), validateJSON(s, data, corev1.DockerConfigKey)...)
	case corev1.SecretTypeDockerConfigJson:
		return append(missing(corev1.DockerConfigJsonKey), validateJSON(s, data, corev1.DockerConfigJsonKey)...)
	case corev1.SecretTypeBasicAuth:
		if !has(corev1.BasicAuthUsernameKey) && !has(corev1.BasicAuthPasswordKey) {
			return missing(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		if len(s.Data[corev1.SSHAuthPrivateKey]) == 0 {
			return field.ErrorList{field.Required(data.Key(corev1.SSHAuthPrivateKey), "")}
		}
	case corev1.SecretTypeTLS:
		return missing(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	return nil
}

func validateJSON(s *corev1.Secret, data *field.Path, key string) field.ErrorList {
	text, ok := s.Data[key]
	if !ok {
		return nil
	}
	if err := json.Unmarshal(text, &map[string]any{}); err != nil {
		return field.ErrorList{field.Invalid(data.Key(key), "<secret contents redacted>", err.Error())}
	}
	return nil
}

func secretWarnings(s *corev1.Secret) []string {
	if s.Type != corev1.SecretTypeTLS {
		return nil
	}
	if _, err := tls.X509KeyPair(s.Data[corev1.TLSCertKey], s.Data[corev1.TLSPrivateKeyKey]); err != nil {
		return []string{err.Error()}
	}
	return nil
}
