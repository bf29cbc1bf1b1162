package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// needed reports every absent value; fields are pairs of a child's name and its value.
func needed(path *field.Path, fields ...string) field.ErrorList {
	var errs field.ErrorList
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] == "" {
			errs = append(errs, field.Required(path.Child(fields[i]), ""))
		}
	}
	return errs
}

// said turns the messages of a library check into errors about one value.
func said(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

func isLabel(path *field.Path, s string) field.ErrorList {
	return said(path, s, validation.IsDNS1123Label(s))
}

func isSubdomain(path *field.Path, s string) field.ErrorList {
	return said(path, s, validation.IsDNS1123Subdomain(s))
}

func isQualified(path *field.Path, s string) field.ErrorList {
	return said(path, s, validation.IsQualifiedName(s))
}

// among wants one of a few values. The list is shown sorted, as it is everywhere in the API.
func among[S ~string](path *field.Path, value S, allowed ...S) field.ErrorList {
	if slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, sorted(allowed))}
}

func sorted[S ~string](list []S) []S {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// amount checks a quantity: never negative, and whole where things are counted.
func amount(path *field.Path, name corev1.ResourceName, q resource.Quantity) field.ErrorList {
	var errs field.ErrorList
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be greater than or equal to 0"))
	}
	if isCounted(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q, "must be an integer"))
	}
	return errs
}

func positive(path *field.Path, q resource.Quantity) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than zero")}
	}
	return nil
}

func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
