package check

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// SignerName refuses what is no name of a certificate signer: a domain, a slash and a path.
func SignerName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	host, path, found := strings.Cut(name, "/")
	if !found || strings.Contains(path, "/") {
		return field.ErrorList{field.Invalid(at, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'")}
	}
	var errs field.ErrorList
	if len(host) > validation.DNS1123SubdomainMaxLength {
		errs = append(errs, field.TooLong(at, "", validation.DNS1123SubdomainMaxLength))
	}
	errs = append(errs, firstInvalidLabel(host, at, validation.IsDNS1123Label)...)
	if !strings.Contains(host, ".") {
		errs = append(errs, field.Invalid(at, host, "should be a domain with at least two segments separated by dots"))
	}
	errs = append(errs, firstInvalidLabel(path, at, validation.IsDNS1123Subdomain)...)
	const most = validation.DNS1123SubdomainMaxLength + 1 + validation.DNS1123SubdomainMaxLength + validation.DNS1123LabelMaxLength + 1
	if len(name) > most {
		errs = append(errs, field.TooLong(at, "", most))
	}
	return errs
}

// firstInvalidLabel checks the parts between dots and reports the first that is invalid.
func firstInvalidLabel(value string, at *field.Path, validate func(string) []string) field.ErrorList {
	for label := range strings.SplitSeq(value, ".") {
		var errs field.ErrorList
		for _, msg := range validate(label) {
			errs = append(errs, field.Invalid(at, value, fmt.Sprintf("validating label %q: %s", label, msg)))
		}
		if len(errs) > 0 {
			return errs
		}
	}
	return nil
}
