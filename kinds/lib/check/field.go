package check

import (
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Required refuses an empty text.
func Required(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return nil
}

// RequiredFields refuses every empty value; fields are pairs of a child's name and its value.
func RequiredFields(at *field.Path, fields ...string) field.ErrorList {
	var errs field.ErrorList
	for i := 0; i+1 < len(fields); i += 2 {
		errs = append(errs, Required(fields[i+1], at.Child(fields[i]))...)
	}
	return errs
}

// OneOf refuses a value that is not among the supported ones, which the error lists in this order.
func OneOf[T ~string](value T, at *field.Path, supported ...T) field.ErrorList {
	if slices.Contains(supported, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(at, value, supported)}
}

// OneOfOrRequired is OneOf, but reports the empty value as missing.
func OneOfOrRequired[T ~string](value T, at *field.Path, supported ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return OneOf(value, at, supported...)
}

// OneOfIfSet is OneOf for a value that may be absent.
func OneOfIfSet[T ~string](value *T, at *field.Path, supported ...T) field.ErrorList {
	if value == nil {
		return nil
	}
	return OneOf(*value, at, supported...)
}

// DNSLabel refuses what is no DNS label.
func DNSLabel(value string, at *field.Path) field.ErrorList {
	return Messages(value, at, validation.IsDNS1123Label(value))
}

// RequiredDNSLabel is DNSLabel, but reports the empty value as missing.
func RequiredDNSLabel(value string, at *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	return DNSLabel(value, at)
}

// DNSSubdomain refuses what is no DNS subdomain, the form of most object names.
func DNSSubdomain(value string, at *field.Path) field.ErrorList {
	return Messages(value, at, validation.IsDNS1123Subdomain(value))
}

// QualifiedName refuses what is no name with an optional domain before a slash, the form of label keys.
func QualifiedName(value string, at *field.Path) field.ErrorList {
	return Messages(value, at, validation.IsQualifiedName(value))
}

// NoBacksteps refuses a file path with the element "..".
func NoBacksteps(target string, at *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(target, "/"), "..") {
		return field.ErrorList{field.Invalid(at, target, "must not contain '..'")}
	}
	return nil
}

// DescendingPath refuses a file path that is absolute or leaves the folder where it starts.
func DescendingPath(target string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(target) {
		errs = append(errs, field.Invalid(at, target, "must be a relative path"))
	}
	return append(errs, NoBacksteps(target, at)...)
}

// UnreservedPath is DescendingPath for a file in a volume: names that begin with two dots are reserved for atomic updates of the
// volume.
func UnreservedPath(target string, at *field.Path) field.ErrorList {
	errs := DescendingPath(target, at)
	if strings.HasPrefix(target, "..") && !strings.HasPrefix(target, "../") {
		errs = append(errs, field.Invalid(at, target, "must not start with '..'"))
	}
	return errs
}

// FileMode refuses bits beyond the permissions, if a mode is set.
func FileMode(mode *int32, at *field.Path) field.ErrorList {
	if mode != nil && (*mode > 0o777 || *mode < 0) {
		return field.ErrorList{field.Invalid(at, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

// UserID refuses what is no user ID of Linux, if one is set.
func UserID(id *int64, at *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return Messages(*id, at, validation.IsValidUserID(*id))
}

// GroupID refuses what is no group ID of Linux, if one is set.
func GroupID(id *int64, at *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return Messages(*id, at, validation.IsValidGroupID(*id))
}

// InRange refuses a number outside of both bounds, which belong to the range.
func InRange[N int32 | int64](value N, low, high N, at *field.Path) field.ErrorList {
	if value < low || value > high {
		return field.ErrorList{field.Invalid(at, value, validation.InclusiveRangeError(int(low), int(high)))}
	}
	return nil
}

// PositiveQuantity refuses a quantity that is not greater than zero.
func PositiveQuantity(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Sign() <= 0 {
		return field.ErrorList{field.Invalid(at, q.String(), "must be greater than zero")}
	}
	return nil
}

// NonNegativeQuantity refuses a quantity below zero.
func NonNegativeQuantity(q resource.Quantity, at *field.Path) field.ErrorList {
	if q.Value() < 0 {
		return field.ErrorList{field.Invalid(at, q.Value(), "must be a valid resource quantity")}
	}
	return nil
}

// OnlyFields refuses every field of a struct that is set but not among the Go names listed.
func OnlyFields(value any, message string, at *field.Path, names ...string) field.ErrorList {
	var errs field.ErrorList
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains(names, name) || v.Field(i).IsZero() {
			continue
		}
		first, size := utf8.DecodeRuneInString(name)
		errs = append(errs, field.Forbidden(at.Child(string(unicode.ToLower(first))+name[size:]), message))
	}
	return errs
}

// CSIDriverName refuses what cannot be the name of a CSI driver.
func CSIDriverName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > 63 {
		errs = append(errs, field.TooLong(at, "", 63))
	}
	return append(errs, Messages(name, at, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}
