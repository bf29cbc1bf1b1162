package core

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

// needed reports every absent value; fields are pairs of a child's name and its value.
func needed(path *field.Path, fields ...string) field.ErrorList {
	var errs field.ErrorList
	for i := 0; i+1 < len(fields); i += 2 {
		errs = append(errs, required(fields[i+1], path.Child(fields[i]))...)
	}
	return errs
}

// subdomain wants a DNS name; unlike dnsName it allows what a name of an object allows, no more.
func subdomain(s string, path *field.Path) field.ErrorList {
	return check.Messages(s, path, validation.IsDNS1123Subdomain(s))
}

// amount checks a quantity: never negative, and whole where things are counted.
func amount(name corev1.ResourceName, q resource.Quantity, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if q.Sign() < 0 {
		errs = append(errs, field.Invalid(path, q.String(), "must be greater than or equal to 0"))
	}
	if isCounted(name) && q.MilliValue()%1000 != 0 {
		errs = append(errs, field.Invalid(path, q, "must be an integer"))
	}
	return errs
}

func positive(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(path, q.String(), "must be greater than zero")}
	}
	return nil
}

// notNegativeAmount refuses a size below zero.
func notNegativeAmount(q resource.Quantity, path *field.Path) field.ErrorList {
	if q.Value() < 0 {
		return field.ErrorList{field.Invalid(path, q.Value(), "must be a valid resource quantity")}
	}
	return nil
}

// value is what a pointer points to, or nothing.
func value[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// Shown wraps a value for an error so that it is printed with the names of its Go fields, as clients know
// it. Plain values print as they are.
func Shown(v any) any {
	if k := reflect.Indirect(reflect.ValueOf(v)).Kind(); k != reflect.Struct && k != reflect.Invalid {
		return v
	}
	return shown{v}
}
