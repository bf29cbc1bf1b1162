package containerspec

import (
	"fmt"
	"regexp"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/node/util/sysctl"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/lib/check"
)

// ValidatePodSecurity checks the security context of a pod.
func ValidatePodSecurity(s *corev1.PodSpec, at *field.Path, allow Allowances) field.ErrorList {
	c := s.SecurityContext
	if c == nil {
		return nil
	}
	errs := check.GroupID(c.FSGroup, at.Child("fsGroup"))
	errs = append(errs, check.UserID(c.RunAsUser, at.Child("runAsUser"))...)
	errs = append(errs, check.GroupID(c.RunAsGroup, at.Child("runAsGroup"))...)
	for i := range c.SupplementalGroups {
		errs = append(errs, check.GroupID(&c.SupplementalGroups[i], at.Child("supplementalGroups").Index(i))...)
	}
	errs = append(errs, validateSysctls(s, at.Child("sysctls"), allow)...)
	errs = append(errs, check.OneOfIfSet(c.FSGroupChangePolicy, at.Child("fsGroupChangePolicy"), corev1.FSGroupChangeAlways,
		corev1.FSGroupChangeOnRootMismatch)...)
	errs = append(errs, validateSeccomp(c.SeccompProfile, at.Child("seccompProfile"))...)
	errs = append(errs, validateWindowsOptions(c.WindowsOptions, at.Child("windowsOptions"))...)
	errs = append(errs, ValidateAppArmorProfile(c.AppArmorProfile, at.Child("appArmorProfile"))...)
	errs = append(errs, check.OneOfIfSet(c.SupplementalGroupsPolicy, at.Child("supplementalGroupsPolicy"),
		corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)...)
	return append(errs, check.OneOfIfSet(c.SELinuxChangePolicy, at.Child("seLinuxChangePolicy"),
		corev1.SELinuxChangePolicyMountOption, corev1.SELinuxChangePolicyRecursive)...)
}

// validateSecurityContext checks the security context of one container.
func validateSecurityContext(c *corev1.SecurityContext, at *field.Path, hostUsers bool, allow Allowances) field.ErrorList {
	if c == nil {
		return nil
	}
	errs := check.UserID(c.RunAsUser, at.Child("runAsUser"))
	errs = append(errs, check.GroupID(c.RunAsGroup, at.Child("runAsGroup"))...)
	if p := c.ProcMount; p != nil {
		errs = append(errs, check.OneOf(*p, at.Child("procMount"), corev1.DefaultProcMount, corev1.UnmaskedProcMount)...)
		if hostUsers && *p == corev1.UnmaskedProcMount {
			errs = append(errs, field.Invalid(at.Child("procMount"), *p, "`hostUsers` must be false to use `Unmasked`"))
		}
	}
	errs = append(errs, validateSeccomp(c.SeccompProfile, at.Child("seccompProfile"))...)
	if e := c.AllowPrivilegeEscalation; e != nil && !*e {
		if ptr.Deref(c.Privileged, false) {
			errs = append(errs, field.Invalid(at, check.GoFields(c), "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"))
		}
		if c.Capabilities != nil && !allow.SysAdminWithoutEscalation {
			for _, added := range c.Capabilities.Add {
				if added == "CAP_SYS_ADMIN" {
					errs = append(errs, field.Invalid(at, check.GoFields(c), "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"))
				}
			}
		}
	}
	errs = append(errs, validateWindowsOptions(c.WindowsOptions, at.Child("windowsOptions"))...)
	return append(errs, ValidateAppArmorProfile(c.AppArmorProfile, at.Child("appArmorProfile"))...)
}

const sysctlMaxLength = 253

var sysctlForm = sync.OnceValue(func() *regexp.Regexp {
	const segment = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
	return regexp.MustCompile("^(" + segment + "[\\./])*" + segment + "$")
})

func validateSysctls(s *corev1.PodSpec, list *field.Path, allow Allowances) field.ErrorList {
	var errs field.ErrorList
	seen := map[string]bool{}
	for i, c := range s.SecurityContext.Sysctls {
		at := list.Index(i).Child("name")
		switch {
		case c.Name == "":
			errs = append(errs, field.Required(at, ""))
		case len(c.Name) > sysctlMaxLength || !sysctlForm().MatchString(c.Name):
			errs = append(errs, field.Invalid(at, c.Name,
				fmt.Sprintf("must have at most %d characters and match regex %s", sysctlMaxLength, sysctlForm())))
		case seen[c.Name]:
			errs = append(errs, field.Duplicate(at, c.Name))
		}
		if !allow.NamespacedSysctlsOnHost {
			errs = append(errs, ValidateHostSysctl(s, c.Name, at)...)
		}
		seen[c.Name] = true
	}
	return errs
}

// ValidateHostSysctl refuses a sysctl of a Linux namespace that the pod shares with the host.
func ValidateHostSysctl(s *corev1.PodSpec, name string, at *field.Path) field.ErrorList {
	switch namespace, _, _ := sysctl.GetNamespace(name); {
	case s.HostNetwork && namespace == sysctl.NetNamespace:
		return field.ErrorList{field.Invalid(at, name, "may not be specified when 'hostNetwork' is true")}
	case s.HostIPC && namespace == sysctl.IPCNamespace:
		return field.ErrorList{field.Invalid(at, name, "may not be specified when 'hostIPC' is true")}
	}
	return nil
}

func validateSeccomp(p *corev1.SeccompProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	var errs field.ErrorList
	if p.Type == "" {
		errs = append(errs, field.Required(at.Child("type"), "type is required when seccompProfile is set"))
	} else {
		errs = append(errs, check.OneOf(p.Type, at.Child("type"),
			corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault, corev1.SeccompProfileTypeUnconfined)...)
	}
	local := at.Child("localhostProfile")
	switch {
	case p.Type != corev1.SeccompProfileTypeLocalhost:
		if p.LocalhostProfile != nil {
			errs = append(errs, field.Invalid(local, check.GoFields(p), "can only be set when seccomp type is Localhost"))
		}
	case p.LocalhostProfile == nil:
		errs = append(errs, field.Required(local, "must be set when seccomp type is Localhost"))
	default:
		errs = append(errs, check.DescendingPath(*p.LocalhostProfile, local)...)
	}
	return errs
}

// ValidateAppArmorProfile checks the AppArmor profile of a Pod or a container.
func ValidateAppArmorProfile(p *corev1.AppArmorProfile, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	local := at.Child("localhostProfile")
	const unset, longest = "must be set when AppArmor type is Localhost", 4095
	switch p.Type {
	case corev1.AppArmorProfileTypeLocalhost:
		if p.LocalhostProfile == nil {
			return field.ErrorList{field.Required(local, unset)}
		}
		var errs field.ErrorList
		if name := *p.LocalhostProfile; strings.TrimSpace(name) != name {
			errs = append(errs, field.Invalid(local, name, "must not be padded with whitespace"))
		} else if name == "" {
			errs = append(errs, field.Required(local, unset))
		}
		if len(*p.LocalhostProfile) > longest {
			errs = append(errs, field.TooLong(local, "", longest))
		}
		return errs
	case corev1.AppArmorProfileTypeRuntimeDefault, corev1.AppArmorProfileTypeUnconfined:
		if p.LocalhostProfile != nil {
			return field.ErrorList{field.Invalid(local, p.LocalhostProfile, "can only be set when AppArmor type is Localhost")}
		}
		return nil
	case "":
		return field.ErrorList{field.Required(at.Child("type"), "type is required when appArmorProfile is set")}
	}
	return check.OneOf(p.Type, at.Child("type"), corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault,
		corev1.AppArmorProfileTypeUnconfined)
}
