package core

import (
	"path"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

// required wants a text that is not empty.
func required(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return nil
}

// oneOf wants one of the values, which the error lists in this order.
func oneOf[T ~string](value T, path *field.Path, values ...T) field.ErrorList {
	if slices.Contains(values, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, values)}
}

// oneOfOrRequired is oneOf with a word of its own for the empty value.
func oneOfOrRequired[T ~string](value T, path *field.Path, values ...T) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return oneOf(value, path, values...)
}

// oneOfIfSet is oneOf for a value that may be absent.
func oneOfIfSet[T ~string](value *T, path *field.Path, values ...T) field.ErrorList {
	if value == nil {
		return nil
	}
	return oneOf(*value, path, values...)
}

func dnsLabel(value string, path *field.Path) field.ErrorList {
	return check.Messages(value, path, validation.IsDNS1123Label(value))
}

func dnsName(value string, path *field.Path) field.ErrorList {
	return check.Messages(value, path, apivalidation.NameIsDNSSubdomain(value, false))
}

func qualifiedName(value string, path *field.Path) field.ErrorList {
	return check.Messages(value, path, validation.IsQualifiedName(value))
}

func requiredDNSLabel(value string, path *field.Path) field.ErrorList {
	if value == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	return dnsLabel(value, path)
}

// noBacksteps wants a path without the element "..".
func noBacksteps(target string, p *field.Path) field.ErrorList {
	if slices.Contains(strings.Split(target, "/"), "..") {
		return field.ErrorList{field.Invalid(p, target, "must not contain '..'")}
	}
	return nil
}

// descendingPath wants a relative path that stays below where it starts.
func descendingPath(target string, p *field.Path) field.ErrorList {
	var errs field.ErrorList
	if path.IsAbs(target) {
		errs = append(errs, field.Invalid(p, target, "must be a relative path"))
	}
	return append(errs, noBacksteps(target, p)...)
}

// localPath wants a descending path whose name does not begin with two dots: such names are the volume's own.
func localPath(target string, p *field.Path) field.ErrorList {
	errs := descendingPath(target, p)
	if strings.HasPrefix(target, "..") && !strings.HasPrefix(target, "../") {
		errs = append(errs, field.Invalid(p, target, "must not start with '..'"))
	}
	return errs
}

func fileMode(mode *int32, p *field.Path) field.ErrorList {
	if mode != nil && (*mode > 0o777 || *mode < 0) {
		return field.ErrorList{field.Invalid(p, *mode, "must be a number between 0 and 0777 (octal), both inclusive")}
	}
	return nil
}

func userID(id *int64, p *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return check.Messages(*id, p, validation.IsValidUserID(*id))
}

func groupID(id *int64, p *field.Path) field.ErrorList {
	if id == nil {
		return nil
	}
	return check.Messages(*id, p, validation.IsValidGroupID(*id))
}

func inRange[N int32 | int64](value N, low, high N, p *field.Path) field.ErrorList {
	if value < low || value > high {
		return field.ErrorList{field.Invalid(p, value, validation.InclusiveRangeError(int(low), int(high)))}
	}
	return nil
}

// onlyFields refuses every field of a struct that is set but not named.
func onlyFields(value any, text string, p *field.Path, names ...string) field.ErrorList {
	var errs field.ErrorList
	v := reflect.ValueOf(value)
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		if slices.Contains(names, name) || v.Field(i).IsZero() {
			continue
		}
		first, size := utf8.DecodeRuneInString(name)
		errs = append(errs, field.Forbidden(p.Child(string(unicode.ToLower(first))+name[size:]), text))
	}
	return errs
}

// isTrue says whether an optional flag is set.
func isTrue(flag *bool) bool { return flag != nil && *flag }
