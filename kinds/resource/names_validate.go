package resource

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// markDeclarative marks errors of declarative validation, which are reported last.
func markDeclarative(errs field.ErrorList) field.ErrorList { return errs.MarkCoveredByDeclarative() }

// declarativeLast sorts errors of declarative validation behind the others.
func declarativeLast(errs field.ErrorList) field.ErrorList {
	slices.SortStableFunc(errs, func(a, b *field.Error) int {
		switch {
		case a.CoveredByDeclarative == b.CoveredByDeclarative:
			return 0
		case a.CoveredByDeclarative:
			return 1
		}
		return -1
	})
	return errs
}

// validateEach checks the items of a list. It does not check those of a list that is too long.
func validateEach[T any](list []T, most int, path *field.Path, item func(*T, *field.Path) field.ErrorList) field.ErrorList {
	if most >= 0 && len(list) > most {
		return markDeclarative(field.ErrorList{field.TooMany(path, len(list), most)})
	}
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, item(&list[i], path.Index(i))...)
	}
	return errs
}

// validateUnique is each for a list whose items must have different keys, by declarative validation.
func validateUnique[T any, K comparable](list []T, most int, path *field.Path, key func(*T) K,
	item func(*T, *field.Path) field.ErrorList) field.ErrorList {
	if most >= 0 && len(list) > most {
		return validateEach(list, most, path, item)
	}
	var errs field.ErrorList
	seen := map[K]bool{}
	for i := range list {
		if k := key(&list[i]); seen[k] {
			errs = append(errs, field.Duplicate(path.Index(i), list[i]))
		} else {
			seen[k] = true
		}
	}
	return append(markDeclarative(errs), validateEach(list, most, path, item)...)
}

// validateDistinct is each for a list whose items must have different keys; its errors stay in their order and quote the key.
func validateDistinct[T any, K comparable](list []T, most int, path *field.Path, key func(*T) K,
	item func(*T, *field.Path) field.ErrorList) field.ErrorList {
	if len(list) > most {
		return field.ErrorList{field.TooMany(path, len(list), most)}
	}
	errs := validateEach(list, most, path, item)
	seen := map[K]bool{}
	for i := range list {
		k := key(&list[i])
		if seen[k] {
			errs = append(errs, field.Duplicate(path.Index(i), k))
		}
		seen[k] = true
	}
	return errs
}

// validateNamedDriver checks the name of a driver with the messages of newer rules.
func validateNamedDriver(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := check.Messages(name, path, content.IsDNS1123SubdomainCaseless(name))
	if utf8.RuneCountInString(name) > resourcev1.DriverNameMaxLength {
		errs = append(errs, field.TooLongCharacters(path, name, resourcev1.DriverNameMaxLength))
	}
	return errs
}

// validatePool requires one or more DNS subdomains with slashes between them.
func validatePool(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(path, "", validation.DNS1123SubdomainMaxLength))
	}
	for part := range strings.SplitSeq(name, "/") {
		errs = append(errs, check.DNSSubdomain(part, path)...)
	}
	return errs
}

// validateDeclaredPool is validatePool with the messages of declarative validation.
func validateDeclaredPool(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if len(name) > content.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(path, "", content.DNS1123SubdomainMaxLength))
	}
	for i, part := range strings.Split(name, "/") {
		if part == "" {
			errs = append(errs, field.Invalid(path, name, fmt.Sprintf("segment %d: must not be empty", i)))
			continue
		}
		for _, text := range content.IsDNS1123Subdomain(part) {
			errs = append(errs, field.Invalid(path, part, fmt.Sprintf("segment %d: %s", i, text)))
		}
	}
	return errs
}

func validateUID(uid string, path *field.Path) field.ErrorList {
	if uuid.Validate(uid) != nil || len(uid) != 36 || uid != strings.ToLower(uid) {
		return field.ErrorList{field.Invalid(path, uid, "must be a lowercase UUID in 8-4-4-4-12 format")}
	}
	return nil
}

// validateQualified requires a C identifier, with an optional domain and slash before it.
func validateQualified(name string, path *field.Path) field.ErrorList {
	parts := strings.Split(name, "/")
	var errs field.ErrorList
	switch len(parts) {
	case 1:
		errs = validateIdentifier(parts[0], path)
	case 2:
		if parts[0] == "" {
			errs = append(errs, field.Invalid(path, "", "the domain must not be empty"))
		} else {
			errs = append(errs, check.CSIDriverName(parts[0], path)...)
		}
		if parts[1] == "" {
			errs = append(errs, field.Invalid(path, "", "the name must not be empty"))
		} else {
			errs = append(errs, validateIdentifier(parts[1], path)...)
		}
	}
	return errs
}

func validateFullyQualified(name string, path *field.Path) field.ErrorList {
	errs := validateQualified(name, path)
	if !strings.Contains(name, "/") {
		errs = append(errs, field.Invalid(path, name, "a fully qualified name must be a domain and a name separated by a slash"))
	}
	return errs
}

func validateIdentifier(id string, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(id) > resourcev1.DeviceMaxIDLength {
		errs = append(errs, field.TooLong(path, "", resourcev1.DeviceMaxIDLength))
	}
	return append(errs, check.Messages(id, path, content.IsCIdentifier(id))...)
}

func validateTaint(t, old *resourcev1.DeviceTaint, path *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabelName(t.Key, path.Child("key"))
	if t.Value != "" {
		errs = append(errs, check.Messages(t.Value, path.Child("value"), validation.IsValidLabelValue(t.Value))...)
	}
	if old == nil || old.Effect != t.Effect {
		errs = append(errs, markDeclarative(check.OneOfOrRequired(t.Effect, path.Child("effect"), effects()...))...)
	}
	return errs
}

func effects() []resourcev1.DeviceTaintEffect {
	return []resourcev1.DeviceTaintEffect{resourcev1.DeviceTaintEffectNoExecute, resourcev1.DeviceTaintEffectNoSchedule,
		resourcev1.DeviceTaintEffectNone}
}

func validateToleration(t *resourcev1.DeviceToleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, markDeclarative(metav1validation.ValidateLabelName(t.Key, path.Child("key")))...)
	}
	switch t.Operator {
	case resourcev1.DeviceTolerationOpExists:
		if t.Value != "" {
			errs = append(errs, field.Invalid(path.Child("value"), t.Value, "must be empty for operator `Exists`"))
		}
	case resourcev1.DeviceTolerationOpEqual:
		errs = append(errs, check.Messages(t.Value, path.Child("value"), validation.IsValidLabelValue(t.Value))...)
	default:
		errs = append(errs, markDeclarative(check.OneOfOrRequired(t.Operator, path.Child("operator"), resourcev1.DeviceTolerationOpEqual,
			resourcev1.DeviceTolerationOpExists))...)
	}
	if t.Effect != "" {
		errs = append(errs, markDeclarative(check.OneOfOrRequired(t.Effect, path.Child("effect"), effects()...))...)
	}
	return errs
}
