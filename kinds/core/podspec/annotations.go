package podspec

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/containerspec"
	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/lib/check"
)

// Annotations of pods that have a meaning. Fields have replaced most of them.
const (
	tolerationsAnnotation    = "scheduler.alpha.kubernetes.io/tolerations"
	deletionCostAnnotation   = "controller.kubernetes.io/pod-deletion-cost"
	seccompPod               = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainer         = "container.seccomp.security.alpha.kubernetes.io/"
	AppArmorAnnotationPrefix = "container.apparmor.security.beta.kubernetes.io/"
	runtimeDefault           = "runtime/default"
	dockerDefault            = "docker/default"
	unconfined               = "unconfined"
	localhostPrefix          = "localhost/"
)

// ValidateAnnotations checks the annotations of a pod or template that have a meaning.
func ValidateAnnotations(annotations map[string]string, s *corev1.PodSpec, at *field.Path, allow Allowances) field.ErrorList {
	var errs field.ErrorList
	if v, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && s.NodeName == "" {
		errs = append(errs, field.Invalid(at.Key(corev1.MirrorPodAnnotationKey), v,
			"must set spec.nodeName if mirror pod annotation is set"))
	}
	if v := annotations[tolerationsAnnotation]; v != "" {
		var tolerations []corev1.Toleration
		if err := json.Unmarshal([]byte(v), &tolerations); err != nil {
			errs = append(errs, field.Invalid(at, tolerationsAnnotation, err.Error()))
		} else {
			errs = append(errs, podplacement.ValidateTolerations(tolerations, at.Child(tolerationsAnnotation),
				allow.Placement.ComparingTolerations)...)
		}
	}
	if v, set := annotations[deletionCostAnnotation]; set && !allow.InvalidDeletionCost && !isDeletionCost(v) {
		errs = append(errs, field.Invalid(at.Key(deletionCostAnnotation), v, "must be a 32bit integer"))
	}
	if p, set := annotations[seccompPod]; set {
		errs = append(errs, validateSeccompName(p, at.Child(seccompPod))...)
	}
	keys := slices.Sorted(maps.Keys(annotations))
	for _, key := range keys {
		if strings.HasPrefix(key, seccompContainer) {
			errs = append(errs, validateSeccompName(annotations[key], at.Child(key))...)
		}
	}
	for _, key := range keys {
		name, ok := strings.CutPrefix(key, AppArmorAnnotationPrefix)
		if !ok {
			continue
		}
		if !hasContainer(s, name) {
			errs = append(errs, field.Invalid(at.Key(key), name, "container not found"))
		}
		if p := annotations[key]; p != "" && p != runtimeDefault && p != unconfined && !strings.HasPrefix(p, localhostPrefix) {
			errs = append(errs, field.Invalid(at.Key(key), p, fmt.Sprintf("invalid AppArmor profile name: %q", p)))
		}
	}
	return errs
}

// isDeletionCost reports whether a text is a 32-bit integer without a plus sign and leading zeros.
func isDeletionCost(v string) bool {
	if v == "0" {
		return true
	}
	if v == "" || v[0] == '+' || v[0] == '0' {
		return false
	}
	_, err := strconv.ParseInt(v, 10, 32)
	return err == nil
}

func validateSeccompName(p string, at *field.Path) field.ErrorList {
	switch {
	case p == runtimeDefault, p == dockerDefault, p == unconfined:
		return nil
	case strings.HasPrefix(p, localhostPrefix):
		return check.DescendingPath(strings.TrimPrefix(p, localhostPrefix), at)
	}
	return field.ErrorList{field.Invalid(at, p, "must be a valid seccomp profile")}
}

func hasContainer(s *corev1.PodSpec, name string) bool {
	for _, c := range containerspec.All(s) {
		if c.Name == name {
			return true
		}
	}
	return false
}

// ValidateSeccompAnnotations refuses a seccomp annotation that contradicts the field.
func ValidateSeccompAnnotations(meta *metav1.ObjectMeta, s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	agree := func(key string, p *corev1.SeccompProfile, at *field.Path) {
		annotation, found := meta.Annotations[key]
		if p == nil || !found {
			return
		}
		errs = append(errs, validateAgreement(securityProfile{"seccomp", string(p.Type), p.LocalhostProfile}, annotation,
			annotation == dockerDefault, at)...)
	}
	if s.SecurityContext != nil {
		agree(seccompPod, s.SecurityContext.SeccompProfile, at.Child("securityContext", "seccompProfile"))
	}
	for c, at := range containerspec.WithPaths(s, at) {
		if c.SecurityContext != nil {
			agree(seccompContainer+c.Name, c.SecurityContext.SeccompProfile, at.Child("securityContext", "seccompProfile"))
		}
	}
	return errs
}

// ValidateAppArmorAnnotations refuses an AppArmor annotation that contradicts the field of the container, or that of
// the pod if the container has none.
func ValidateAppArmorAnnotations(meta *metav1.ObjectMeta, s *corev1.PodSpec, at *field.Path) field.ErrorList {
	if IsWindows(s) {
		return nil
	}
	var errs field.ErrorList
	for c, at := range containerspec.WithPaths(s, at) {
		var p *corev1.AppArmorProfile
		if s.SecurityContext != nil {
			p = s.SecurityContext.AppArmorProfile
		}
		if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			p = c.SecurityContext.AppArmorProfile
		}
		if annotation, found := meta.Annotations[AppArmorAnnotationPrefix+c.Name]; found && p != nil {
			errs = append(errs, validateAgreement(securityProfile{"apparmor", string(p.Type), p.LocalhostProfile}, annotation, false,
				at.Child("securityContext", "appArmorProfile"))...)
		}
	}
	return errs
}

// securityProfile is the seccomp or AppArmor profile that a field names. Both have the same types.
type securityProfile struct {
	module           string // as messages name it
	kind             string
	localhostProfile *string
}

// validateAgreement refuses an annotation that names another profile than the field that replaced it. isDefault says that the
// annotation is another name of the runtime's default profile.
func validateAgreement(p securityProfile, annotation string, isDefault bool, at *field.Path) field.ErrorList {
	other := field.ErrorList{field.Forbidden(at.Child("type"), p.module+" type in annotation and field must match")}
	switch p.kind {
	case string(corev1.SeccompProfileTypeUnconfined):
		if annotation != unconfined {
			return other
		}
	case string(corev1.SeccompProfileTypeRuntimeDefault):
		if annotation != runtimeDefault && !isDefault {
			return other
		}
	case string(corev1.SeccompProfileTypeLocalhost):
		name, ok := strings.CutPrefix(annotation, localhostPrefix)
		if !ok {
			return other
		}
		if p.localhostProfile == nil || name != *p.localhostProfile {
			return field.ErrorList{field.Forbidden(at.Child("localhostProfile"), p.module+" profile in annotation and field must match")}
		}
	}
	return nil
}
