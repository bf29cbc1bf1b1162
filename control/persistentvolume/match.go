package persistentvolume

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// bestVolume returns the volume for a claim that does not name one, or nil. A volume that was created or reserved for the claim
// comes first; then the one with the fewest access modes, and of those the smallest. A delayed claim gets only a volume that
// is reserved for it: the scheduler chooses among the others.
func bestVolume(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, delayed bool) (*corev1.PersistentVolume, error) {
	selector := labels.Everything()
	if claim.Spec.Selector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(claim.Spec.Selector); err != nil {
			return nil, fmt.Errorf("the selector of claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	var found *corev1.PersistentVolume
	for _, v := range volumes {
		switch {
		case !isLargeEnough(v, claim) || !hasSameMode(v, claim) || !hasSameAttributes(v, claim) || !hasAccessModes(v, claim) ||
			v.DeletionTimestamp != nil:
		case isReservedFor(v, claim):
			return v, nil
		case v.Spec.ClaimRef != nil || delayed || v.Status.Phase != corev1.VolumeAvailable:
		case !selector.Matches(labels.Set(v.Labels)) || volumeClass(v) != claimClass(claim):
		case found == nil || isCloser(v, found):
			found = v
		}
	}
	return found, nil
}

// isCloser reports whether a fits a claim better than b, if both fit.
func isCloser(a, b *corev1.PersistentVolume) bool {
	if n, m := len(distinct(a.Spec.AccessModes)), len(distinct(b.Spec.AccessModes)); n != m {
		return n < m
	}
	size, other := a.Spec.Capacity[corev1.ResourceStorage], b.Spec.Capacity[corev1.ResourceStorage]
	return size.Cmp(other) < 0
}

func distinct(modes []corev1.PersistentVolumeAccessMode) []corev1.PersistentVolumeAccessMode {
	out := slices.Clone(modes)
	slices.Sort(out)
	return slices.Compact(out)
}

// isReservedFor reports whether the claimRef of a volume names a claim, and has no UID or that of the claim.
func isReservedFor(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == claim.Name && ref.Namespace == claim.Namespace && (ref.UID == "" || ref.UID == claim.UID)
}

func isLargeEnough(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	size, wanted := v.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return size.Cmp(wanted) >= 0
}

func hasSameMode(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	mode := func(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
		if m == nil {
			return corev1.PersistentVolumeFilesystem
		}
		return *m
	}
	return mode(v.Spec.VolumeMode) == mode(claim.Spec.VolumeMode)
}

func hasSameAttributes(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	name := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return name(v.Spec.VolumeAttributesClassName) == name(claim.Spec.VolumeAttributesClassName)
}

// hasAccessModes reports whether a volume has every access mode of a claim.
func hasAccessModes(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(v.Spec.AccessModes, m)
	})
}

// checkSatisfies returns an error if a volume that a claim names does not fit it.
func checkSatisfies(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Errorf("the volume is marked for deletion %q", v.Name)
	case !isLargeEnough(v, claim):
		return errors.New("requested PV is too small")
	case volumeClass(v) != claimClass(claim):
		return errors.New("storageClassName does not match")
	case !hasSameAttributes(v, claim):
		return errors.New("volumeAttributesClassName does not match")
	case !hasSameMode(v, claim):
		return errors.New("incompatible volumeMode")
	case !hasAccessModes(v, claim):
		return errors.New("incompatible accessMode")
	}
	return nil
}
