package containerspec

import (
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// windowsNamePatterns are the patterns that names of Windows users must match, or must not.
var windowsNamePatterns = sync.OnceValue(func() (f struct{ control, netBIOS, domain, chars, dots *regexp.Regexp }) {
	const label = `[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?`
	f.control = regexp.MustCompile(`[[:cntrl:]]+`)
	f.netBIOS = regexp.MustCompile(`^[^\\/:\*\?"<>|\.][^\\/:\*\?"<>|]{0,14}$`)
	f.domain = regexp.MustCompile(`^` + label + `(?:\.` + label + `)*$`)
	f.chars = regexp.MustCompile(`["/\\:;|=,\+\*\?<>@\[\]]`)
	f.dots = regexp.MustCompile(`^[\. ]+$`)
	return f
})

func validateWindowsOptions(o *corev1.WindowsSecurityContextOptions, at *field.Path) field.ErrorList {
	if o == nil {
		return nil
	}
	var errs field.ErrorList
	if n := o.GMSACredentialSpecName; n != nil {
		errs = append(errs, check.DNSSubdomain(*n, at.Child("gmsaCredentialSpecName"))...)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		if at := at.Child("gmsaCredentialSpec"); *spec == "" {
			errs = append(errs, field.Invalid(at, *spec, "gmsaCredentialSpec cannot be an empty string"))
		} else if len(*spec) > 64<<10 {
			errs = append(errs, field.Invalid(at, *spec, "gmsaCredentialSpec size must be under 64 KiB"))
		}
	}
	if o.RunAsUserName != nil {
		errs = append(errs, check.Messages(*o.RunAsUserName, at.Child("runAsUserName"), windowsUserErrors(*o.RunAsUserName))...)
	}
	return errs
}

// windowsUserErrors returns the errors of the name of a Windows user, which may have a domain before a backslash.
func windowsUserErrors(name string) []string {
	f := windowsNamePatterns()
	switch {
	case name == "":
		return []string{"runAsUserName cannot be an empty string"}
	case f.control.MatchString(name):
		return []string{"runAsUserName cannot contain control characters"}
	case strings.Count(name, `\`) > 1:
		return []string{"runAsUserName cannot contain more than one backslash"}
	}
	domain, user, hasDomain := strings.Cut(name, `\`)
	if !hasDomain {
		domain, user = "", name
	}
	var wrong []string
	add := func(is bool, text string) {
		if is {
			wrong = append(wrong, text)
		}
	}
	add(len(domain) >= 256, "runAsUserName's Domain length must be under 256 characters")
	add(hasDomain && !f.netBIOS.MatchString(domain) && !f.domain.MatchString(domain),
		"runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	add(user == "", "runAsUserName's User cannot be empty")
	add(len(user) > 104, "runAsUserName's User length must not be longer than 104 characters")
	add(f.dots.MatchString(user), "runAsUserName's User cannot contain only periods or spaces")
	add(f.chars.MatchString(user), `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	return wrong
}
