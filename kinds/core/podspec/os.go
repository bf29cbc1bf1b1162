package podspec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/lib/check"
)

// IsWindows reports whether a Pod says that it is for Windows.
func IsWindows(s *corev1.PodSpec) bool { return s.OS != nil && s.OS.Name == corev1.Windows }

// validateOS checks the operating system and refuses fields that only another one supports.
func validateOS(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	switch s.OS.Name {
	case "":
		return field.ErrorList{field.Required(at.Child("os", "name"), "")}
	case corev1.Linux:
		return validateLinux(s, at)
	case corev1.Windows:
		return validateWindows(s, at)
	}
	return check.OneOf(s.OS.Name, at.Child("os"), corev1.Linux, corev1.Windows)
}

func validateLinux(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	const text = "windows options cannot be set for a linux pod"
	var errs field.ErrorList
	if s.SecurityContext != nil && s.SecurityContext.WindowsOptions != nil {
		errs = append(errs, field.Forbidden(at.Child("securityContext", "windowsOptions"), text))
	}
	for c, at := range containerspec.WithPaths(s, at) {
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
	for container, at := range containerspec.WithPaths(s, at) {
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

// validateHostProcess requires that all containers of a Windows pod are HostProcess containers, or none.
func validateHostProcess(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	var pod *bool
	if c := s.SecurityContext; c != nil && c.WindowsOptions != nil {
		pod = c.WindowsOptions.HostProcess
	}
	all, some := true, false
	for container, at := range containerspec.WithPaths(s, at) {
		own := pod
		if c := container.SecurityContext; c != nil && c.WindowsOptions != nil && c.WindowsOptions.HostProcess != nil {
			own = c.WindowsOptions.HostProcess
			if pod != nil && *pod != *own {
				errs = append(errs, field.Invalid(at.Child("securityContext", "windowsOptions", "hostProcess"), *own,
					fmt.Sprintf("pod hostProcess value must be identical if both are specified, was %v", *pod)))
			}
		}
		all, some = all && ptr.Deref(own, false), some || ptr.Deref(own, false)
	}
	if some && !all {
		errs = append(errs, field.Invalid(at, "", "If pod contains any hostProcess containers then all containers must be HostProcess containers"))
	}
	if some && !s.HostNetwork {
		errs = append(errs, field.Invalid(at.Child("hostNetwork"), false,
			"hostNetwork must be true if pod contains any hostProcess containers"))
	}
	return errs
}
