package core

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

func onWindows(s *corev1.PodSpec) bool { return s.OS != nil && s.OS.Name == corev1.Windows }

// validateOS checks the operating system and refuses the fields of the other one.
func validateOS(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	switch s.OS.Name {
	case "":
		return field.ErrorList{field.Required(at.Child("os", "name"), "")}
	case corev1.Linux:
		return validateLinux(s, at)
	case corev1.Windows:
		return validateWindows(s, at)
	}
	return oneOf(s.OS.Name, at.Child("os"), corev1.Linux, corev1.Windows)
}

func validateLinux(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	const text = "windows options cannot be set for a linux pod"
	var errs field.ErrorList
	if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(at.Child("securityContext", "windowsOptions"), text))
	}
	for c, at := range containerPaths(s, at) {
		if c.SecurityContext != nil && c.SecurityContext.WindowsOptions != nil {
			errs = append(errs, field.Forbidden(at.Child("securityContext", "windowsOptions"), text))
		}
	}
	return errs
}

func validateWindows(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	refuse := func(set bool, path *field.Path) {
		if set {
			errs = append(errs, field.Forbidden(path, "cannot be set for a windows pod"))
		}
	}
	if c := s.SecurityContext; c != nil {
		at := at.Child("securityContext")
		refuse(c.AppArmorProfile != nil, at.Child("appArmorProfile"))
		refuse(c.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		refuse(c.SeccompProfile != nil, at.Child("seccompProfile"))
		refuse(c.FSGroup != nil, at.Child("fsGroup"))
		refuse(c.FSGroupChangePolicy != nil, at.Child("fsGroupChangePolicy"))
		refuse(len(c.Sysctls) > 0, at.Child("sysctls"))
		refuse(c.RunAsUser != nil, at.Child("runAsUser"))
		refuse(c.RunAsGroup != nil, at.Child("runAsGroup"))
		refuse(c.SupplementalGroups != nil, at.Child("supplementalGroups"))
		refuse(c.SupplementalGroupsPolicy != nil, at.Child("supplementalGroupsPolicy"))
		refuse(c.SELinuxChangePolicy != nil, at.Child("seLinuxChangePolicy"))
	}
	refuse(s.HostUsers != nil, at.Child("hostUsers"))
	refuse(s.HostPID, at.Child("hostPID"))
	refuse(s.HostIPC, at.Child("hostIPC"))
	refuse(s.ShareProcessNamespace != nil, at.Child("shareProcessNamespace"))
	for container, at := range containerPaths(s, at) {
		c, at := container.SecurityContext, at.Child("securityContext")
		if c == nil {
			continue
		}
		refuse(c.AppArmorProfile != nil, at.Child("appArmorProfile"))
		refuse(c.SELinuxOptions != nil, at.Child("seLinuxOptions"))
		refuse(c.SeccompProfile != nil, at.Child("seccompProfile"))
		refuse(c.Capabilities != nil, at.Child("capabilities"))
		refuse(c.ReadOnlyRootFilesystem != nil, at.Child("readOnlyRootFilesystem"))
		refuse(c.Privileged != nil, at.Child("privileged"))
		refuse(c.AllowPrivilegeEscalation != nil, at.Child("allowPrivilegeEscalation"))
		refuse(c.ProcMount != nil, at.Child("procMount"))
		refuse(c.RunAsUser != nil, at.Child("runAsUser"))
		refuse(c.RunAsGroup != nil, at.Child("runAsGroup"))
	}
	return errs
}

// validateHostProcess wants all containers of a pod to run as processes of the host, or none.
func validateHostProcess(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	var pod *bool
	if c := s.SecurityContext; c != nil && c.WindowsOptions != nil {
		pod = c.WindowsOptions.HostProcess
	}
	all, some := true, false
	for container, at := range containerPaths(s, at) {
		own := pod
		if c := container.SecurityContext; c != nil && c.WindowsOptions != nil && c.WindowsOptions.HostProcess != nil {
			own = c.WindowsOptions.HostProcess
			if pod != nil && *pod != *own {
				errs = append(errs, field.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own,
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod)))
			}
		}
		all, some = all && isTrue(own), some || isTrue(own)
	}
	if some && !all {
		errs = append(errs, field.Invalid(at, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if some && !s.HostNetwork {
		errs = append(errs, field.Invalid(at.Child("hostNetwork"), false, "hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}

// windowsForms are the rules for the names of Windows users.
var windowsForms = sync.OnceValue(func() (f struct{ control, netBIOS, domain, chars, dots *regexp.Regexp }) {
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
		errs = append(errs, check.Messages(*n, at.Child("gmsaCredentialSpecName"), validation.IsDNS1123Subdomain(*n))...)
	}
	if spec := o.GMSACredentialSpec; spec != nil {
		if at := at.Child("gmsaCredentialSpec"); *spec == "" {
			errs = append(errs, field.Invalid(at, *spec, "gmsaCredentialSpec cannot be an empty string"))
		} else if len(*spec) > 64<<10 {
			errs = append(errs, field.Invalid(at, *spec, "gmsaCredentialSpec size must be under 64 KiB"))
		}
	}
	if o.RunAsUserName != nil {
		errs = append(errs, check.Messages(*o.RunAsUserName, at.Child("runAsUserName"), windowsUser(*o.RunAsUserName))...)
	}
	return errs
}

// windowsUser says what is wrong with the name of a Windows user, which may have a domain before a backslash.
func windowsUser(name string) []string {
	f := windowsForms()
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
	say := func(is bool, text string) {
		if is {
			wrong = append(wrong, text)
		}
	}
	say(len(domain) >= 256, "runAsUserName's Domain length must be under 256 characters")
	say(hasDomain && !f.netBIOS.MatchString(domain) && !f.domain.MatchString(domain), "runAsUserName's Domain doesn't match the NetBios nor the DNS format")
	say(user == "", "runAsUserName's User cannot be empty")
	say(len(user) > 104, "runAsUserName's User length must not be longer than 104 characters")
	say(f.dots.MatchString(user), "runAsUserName's User cannot contain only periods or spaces")
	say(f.chars.MatchString(user), `runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]`)
	return wrong
}
