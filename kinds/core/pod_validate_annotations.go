package core

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
)

// Annotations of pods that mean something. Most of them were fields in waiting.
const (
	tolerationsAnnotation  = "scheduler.alpha.kubernetes.io/tolerations"
	deletionCostAnnotation = "controller.kubernetes.io/pod-deletion-cost"
	seccompPod             = "seccomp.security.alpha.kubernetes.io/pod"
	seccompContainer       = "container.seccomp.security.alpha.kubernetes.io/"
	appArmorContainer      = "container.apparmor.security.beta.kubernetes.io/"
	runtimeDefault         = "runtime/default"
	dockerDefault          = "docker/default"
	unconfined             = "unconfined"
	localhostPrefix        = "localhost/"
)

func validatePodAnnotations(annotations map[string]string, s *corev1.PodSpec, at *field.Path, allow PodAllowances) field.ErrorList {
	var errs field.ErrorList
	if v, mirror := annotations[corev1.MirrorPodAnnotationKey]; mirror && s.NodeName == "" {
		errs = append(errs, field.Invalid(at.Key(corev1.MirrorPodAnnotationKey), v, "must set spec.nodeName if mirror pod annotation is set"))
	}
	if v := annotations[tolerationsAnnotation]; v != "" {
		var tolerations []corev1.Toleration
		if err := json.Unmarshal([]byte(v), &tolerations); err != nil {
			errs = append(errs, field.Invalid(at, tolerationsAnnotation, err.Error()))
		} else {
			errs = append(errs, ValidateTolerations(tolerations, at.Child(tolerationsAnnotation), allow.comparedTolerations)...)
		}
	}
	if v, set := annotations[deletionCostAnnotation]; set && !allow.invalidDeletionCost && !isDeletionCost(v) {
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
		name, ok := strings.CutPrefix(key, appArmorContainer)
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

// isDeletionCost says whether a text is a 32-bit number in the one form that numbers have.
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
		return descendingPath(strings.TrimPrefix(p, localhostPrefix), at)
	}
	return field.ErrorList{field.Invalid(at, p, "must be a valid seccomp profile")}
}

func hasContainer(s *corev1.PodSpec, name string) bool {
	for _, c := range containersOf(s) {
		if c.Name == name {
			return true
		}
	}
	return false
}

// validateSeccompAnnotations wants annotation and field to agree where both are set.
func validateSeccompAnnotations(meta *metav1.ObjectMeta, s *corev1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	agree := func(key string, p *corev1.SeccompProfile, at *field.Path) {
		annotation, found := meta.Annotations[key]
		if p == nil || !found {
			return
		}
		errs = append(errs, agreement("seccomp", annotation, string(p.Type), p.LocalhostProfile, annotation == dockerDefault, at)...)
	}
	if s.SecurityContext != nil {
		agree(seccompPod, s.SecurityContext.SeccompProfile, at.Child("securityContext", "seccompProfile"))
	}
	for c, at := range containerPaths(s, at) {
		if c.SecurityContext != nil {
			agree(seccompContainer+c.Name, c.SecurityContext.SeccompProfile, at.Child("securityContext", "seccompProfile"))
		}
	}
	return errs
}

// validateAppArmorAnnotations does the same for AppArmor, where the pod's profile stands in for the container's.
func validateAppArmorAnnotations(meta *metav1.ObjectMeta, s *corev1.PodSpec, at *field.Path) field.ErrorList {
	if onWindows(s) {
		return nil
	}
	var errs field.ErrorList
	for c, at := range containerPaths(s, at) {
		var p *corev1.AppArmorProfile
		if s.SecurityContext != nil {
			p = s.SecurityContext.AppArmorProfile
		}
		if c.SecurityContext != nil && c.SecurityContext.AppArmorProfile != nil {
			p = c.SecurityContext.AppArmorProfile
		}
		if annotation, found := meta.Annotations[appArmorContainer+c.Name]; found && p != nil {
			errs = append(errs, agreement("apparmor", annotation, string(p.Type), p.LocalhostProfile, false, at.Child("securityContext", "appArmorProfile"))...)
		}
	}
	return errs
}

// agreement compares an annotation with the field that replaced it.
func agreement(what, annotation, kind string, local *string, isDefault bool, at *field.Path) field.ErrorList {
	other := field.ErrorList{field.Forbidden(at.Child("type"), what+" type in annotation and field must match")}
	switch kind {
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
		if local == nil || name != *local {
			return field.ErrorList{field.Forbidden(at.Child("localhostProfile"), what+" profile in annotation and field must match")}
		}
	}
	return nil
}

// validateAnnotationChanges checks the annotations of a pod that is changed.
func validateAnnotationChanges(p, old *corev1.Pod, at *field.Path, allow PodAllowances) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(old.Annotations)) {
		if v, still := p.Annotations[key]; still && v == old.Annotations[key] {
			continue
		}
		if strings.HasPrefix(key, appArmorContainer) {
			errs = append(errs, field.Forbidden(at.Key(key), "may not remove or update AppArmor annotations"))
		}
		if key == corev1.MirrorPodAnnotationKey {
			errs = append(errs, field.Forbidden(at.Key(key), "may not remove or update mirror pod annotation"))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(p.Annotations)) {
		if _, before := old.Annotations[key]; before {
			continue
		}
		if strings.HasPrefix(key, appArmorContainer) {
			errs = append(errs, field.Forbidden(at.Key(key), "may not add AppArmor annotations"))
		}
		if key == corev1.MirrorPodAnnotationKey {
			errs = append(errs, field.Forbidden(at.Key(key), "may not add mirror pod annotation"))
		}
	}
	return append(errs, validatePodAnnotations(p.Annotations, &p.Spec, at, allow)...)
}
