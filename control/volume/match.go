package volume

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// best finds the volume for a claim that does not name one. A volume that was made for the claim, or that a person reserved
// for it, goes before all others; then come those with the fewest access modes beyond what is asked for, and of those the
// smallest. delayed claims get only what is reserved for them: the scheduler chooses among the others.
func best(claim *corev1.PersistentVolumeClaim, volumes []*corev1.PersistentVolume, delayed bool) (*corev1.PersistentVolume, error) {
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
		case !large(v, claim) || !sameMode(v, claim) || !sameAttributes(v, claim) || !allows(v, claim) || v.DeletionTimestamp != nil:
		case reserved(v, claim):
			return v, nil
		case v.Spec.ClaimRef != nil || delayed || v.Status.Phase != corev1.VolumeAvailable:
		case !selector.Matches(labels.Set(v.Labels)) || volumeClass(v) != claimClass(claim):
		case found == nil || closer(v, found):
			found = v
		}
	}
	return found, nil
}

// closer says that a fits a claim better than b, when both fit.
func closer(a, b *corev1.PersistentVolume) bool {
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

// reserved says that a volume is a claim's: it names the claim, and if it names a UID, then that one.
func reserved(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == claim.Name && ref.Namespace == claim.Namespace && (ref.UID == "" || ref.UID == claim.UID)
}

func large(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	size, wanted := v.Spec.Capacity[corev1.ResourceStorage], claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return size.Cmp(wanted) >= 0
}

func sameMode(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	mode := func(m *corev1.PersistentVolumeMode) corev1.PersistentVolumeMode {
		if m == nil {
			return corev1.PersistentVolumeFilesystem
		}
		return *m
	}
	return mode(v.Spec.VolumeMode) == mode(claim.Spec.VolumeMode)
}

func sameAttributes(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	name := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	return name(v.Spec.VolumeAttributesClassName) == name(claim.Spec.VolumeAttributesClassName)
}

// allows says that a volume has every access mode of a claim.
func allows(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	return !slices.ContainsFunc(claim.Spec.AccessModes, func(m corev1.PersistentVolumeAccessMode) bool {
		return !slices.Contains(v.Spec.AccessModes, m)
	})
}

// satisfies says why a volume that a claim asks for by name cannot be the claim's.
func satisfies(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) error {
	switch {
	case v.DeletionTimestamp != nil:
		return fmt.Errorf("the volume is marked for deletion %q", v.Name)
	case !large(v, claim):
		return errors.New("requested PV is too small")
	case volumeClass(v) != claimClass(claim):
		return errors.New("storageClassName does not match")
	case !sameAttributes(v, claim):
		return errors.New("volumeAttributesClassName does not match")
	case !sameMode(v, claim):
		return errors.New("incompatible volumeMode")
	case !allows(v, claim):
		return errors.New("incompatible accessMode")
	}
	return nil
}
