package podkind

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/podspec"
)

// validateAnnotationChanges checks the annotations of an updated pod.
func validateAnnotationChanges(p, old *corev1.Pod, at *field.Path, allow podspec.Allowances) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(old.Annotations)) {
		if v, still := p.Annotations[key]; still && v == old.Annotations[key] {
			continue
		}
		if strings.HasPrefix(key, podspec.AppArmorAnnotationPrefix) {
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
		if strings.HasPrefix(key, podspec.AppArmorAnnotationPrefix) {
			errs = append(errs, field.Forbidden(at.Key(key), "may not add AppArmor annotations"))
		}
		if key == corev1.MirrorPodAnnotationKey {
			errs = append(errs, field.Forbidden(at.Key(key), "may not add mirror pod annotation"))
		}
	}
	return append(errs, podspec.ValidateAnnotations(p.Annotations, &p.Spec, at, allow)...)
}
