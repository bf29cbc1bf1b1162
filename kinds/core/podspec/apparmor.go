package podspec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core/containerspec"
)

// PodAppArmorProfile returns the profile of the pod's security context; nil if there is none.
func PodAppArmorProfile(s *corev1.PodSpec) *corev1.AppArmorProfile {
	if s.SecurityContext == nil {
		return nil
	}
	return s.SecurityContext.AppArmorProfile
}

// AppArmorProfile returns the profile that an annotation names; nil if it names no valid one.
func AppArmorProfile(annotation string) *corev1.AppArmorProfile {
	var p *corev1.AppArmorProfile
	switch name, local := strings.CutPrefix(annotation, localhostPrefix); {
	case annotation == unconfined:
		p = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	case annotation == runtimeDefault:
		p = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeRuntimeDefault}
	case local && name != "":
		p = &corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	if len(containerspec.ValidateAppArmorProfile(p, nil)) > 0 {
		return nil
	}
	return p
}
