// Package check validates single fields: the checks that kinds of several groups share. Their errors have upstream's texts, which
// clients know.
package check

import (
	"strconv"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	netutils "k8s.io/utils/net"
)

// PathSegment returns why a name, or the prefix of one, cannot be a segment of a URL path.
func PathSegment(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

// NonNegative refuses numbers below zero.
func NonNegative(value int64, path *field.Path) field.ErrorList {
	return validation.ValidateNonnegativeField(value, path)
}

// NonNegativePtr refuses numbers below zero, if there is one.
func NonNegativePtr[N int32 | int64](value *N, path *field.Path) field.ErrorList {
	if value == nil {
		return nil
	}
	return validation.ValidateNonnegativeField(int64(*value), path)
}

// Immutable refuses a value that differs from the old one.
func Immutable(value, old any, path *field.Path) field.ErrorList {
	if equality.Semantic.DeepEqual(old, value) {
		return nil
	}
	return field.ErrorList{field.Invalid(path, value, validation.FieldImmutableErrorMsg)}
}

// Messages returns an Invalid error for each message.
func Messages(value any, path *field.Path, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// IP refuses an invalid address in a field that once accepted leading zeros; old lists values already stored, which stay
// allowed.
func IP(value string, path *field.Path, old []string) field.ErrorList {
	return utilvalidation.IsValidIPForLegacyField(path, value, true, old)
}

// CIDR is IP for a network.
func CIDR(value string, path *field.Path, old []string) field.ErrorList {
	return utilvalidation.IsValidCIDRForLegacyField(path, value, true, old)
}

// IntOrPercent refuses what is neither a percentage nor a number that is not negative.
func IntOrPercent(value intstr.IntOrString, path *field.Path) field.ErrorList {
	switch value.Type {
	case intstr.String:
		return Messages(value, path, utilvalidation.IsValidPercent(value.StrVal))
	case intstr.Int:
		return NonNegative(int64(value.IntVal), path)
	}
	return field.ErrorList{field.Invalid(path, value, "must be an integer or percentage (e.g '5%%')")}
}

// Percent parses a percentage; ok is false for a number and for a malformed text.
func Percent(value intstr.IntOrString) (percent int, ok bool) {
	if value.Type != intstr.String || len(utilvalidation.IsValidPercent(value.StrVal)) > 0 {
		return 0, false
	}
	percent, _ = strconv.Atoi(value.StrVal[:len(value.StrVal)-1])
	return percent, true
}

// AtMost100Percent refuses percentages above 100.
func AtMost100Percent(value intstr.IntOrString, path *field.Path) field.ErrorList {
	if percent, ok := Percent(value); ok && percent > 100 {
		return field.ErrorList{field.Invalid(path, value, "must not be greater than 100%")}
	}
	return nil
}

// ImmutableError returns the error that upstream's declarative validation gives for a change of an immutable field.
func ImmutableError(path *field.Path) *field.Error {
	return field.Invalid(path, nil, "field is immutable")
}

// RequiredPathSegment refuses a name that is empty, with the detail given, or cannot be a segment of a URL path.
func RequiredPathSegment(name string, path *field.Path, required string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, required)}
	}
	return Messages(name, path, content.IsPathSegmentName(name))
}

// EndpointIP refuses an address that no traffic can be sent to from another host.
func EndpointIP(address string, path *field.Path) field.ErrorList {
	ip := netutils.ParseIPSloppy(address)
	if ip == nil {
		return field.ErrorList{field.Invalid(path, address, "must be a valid IP address")}
	}
	var errs field.ErrorList
	for _, rule := range []struct {
		broken bool
		text   string
	}{
		{ip.IsUnspecified(), "may not be unspecified (" + address + ")"},
		{ip.IsLoopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)"},
		{ip.IsLinkLocalUnicast(), "may not be in the link-local range (169.254.0.0/16, fe80::/10)"},
		{ip.IsLinkLocalMulticast(), "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"},
	} {
		if rule.broken {
			errs = append(errs, field.Invalid(path, address, rule.text))
		}
	}
	return errs
}

// LongName is the name rule of kinds with declarative validation (the format k8s-long-name): a DNS subdomain, with the messages of that
// validation, which does not check generateName.
func LongName(name string, prefix bool) []string {
	if prefix {
		return nil
	}
	return content.IsDNS1123Subdomain(name)
}
