package persistentvolume

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/quantity"
)

// boundVolume returns a volume whose claimRef names a claim. changed is false when it did so before.
func boundVolume(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) (next *corev1.PersistentVolume, changed bool) {
	next = v.DeepCopy()
	ref := v.Spec.ClaimRef
	if ref == nil || ref.Name != claim.Name || ref.Namespace != claim.Namespace || ref.UID != claim.UID {
		next.Spec.ClaimRef, changed = &corev1.ObjectReference{
			APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name,
			UID: claim.UID, ResourceVersion: claim.ResourceVersion,
		}, true
	}
	if !isReservedFor(v, claim) && !metav1.HasAnnotation(v.ObjectMeta, boundByController) {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, boundByController, "yes")
		changed = true
	}
	return next, changed
}

// unboundVolume returns a volume without a claimRef or, if a user had reserved it for a claim, with a claimRef that any claim
// of that name matches.
func unboundVolume(v *corev1.PersistentVolume) *corev1.PersistentVolume {
	next := v.DeepCopy()
	if !metav1.HasAnnotation(v.ObjectMeta, boundByController) {
		next.Spec.ClaimRef.UID = ""
		return next
	}
	next.Spec.ClaimRef = nil
	if delete(next.Annotations, boundByController); len(next.Annotations) == 0 {
		next.Annotations = nil
	}
	return next
}

// boundClaim returns a claim that names a volume and has the annotation for a completed binding.
func boundClaim(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (next *corev1.PersistentVolumeClaim, changed bool) {
	next = claim.DeepCopy()
	if claim.Spec.VolumeName != v.Name {
		next.Spec.VolumeName, changed = v.Name, true
		if !metav1.HasAnnotation(next.ObjectMeta, boundByController) {
			metav1.SetMetaDataAnnotation(&next.ObjectMeta, boundByController, "yes")
		}
	}
	if !metav1.HasAnnotation(next.ObjectMeta, bindCompleted) {
		metav1.SetMetaDataAnnotation(&next.ObjectMeta, bindCompleted, "yes")
		changed = true
	}
	return next, changed
}

// boundStatus returns the status of a claim that has a volume. It keeps the capacity of a claim that was bound before, because
// a file system may be resized later than its volume.
func boundStatus(claim *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) (corev1.PersistentVolumeClaimStatus, error) {
	now := *claim.Status.DeepCopy()
	if !slices.Equal(now.AccessModes, v.Spec.AccessModes) {
		now.AccessModes = slices.Clone(v.Spec.AccessModes)
	}
	if now.Phase == corev1.ClaimBound {
		return now, nil
	}
	size, ok := v.Spec.Capacity[corev1.ResourceStorage]
	if !ok {
		return now, fmt.Errorf("PersistentVolume %q is without a storage capacity", v.Name)
	}
	if text, resized := v.Annotations[preResize]; resized {
		before, err := quantity.Parse(text)
		if err != nil {
			before = size
		}
		if now.Capacity == nil {
			now.Capacity = corev1.ResourceList{}
		}
		now.Capacity[corev1.ResourceStorage] = before
	} else if have, ok := now.Capacity[corev1.ResourceStorage]; !ok || have.Cmp(size) != 0 {
		now.Capacity = v.Spec.Capacity.DeepCopy()
	}
	if now.Phase == corev1.ClaimPending {
		now.CurrentVolumeAttributesClassName = v.Spec.VolumeAttributesClassName
	}
	now.Phase = corev1.ClaimBound
	return now, nil
}

// unboundStatus returns the status of a claim without a volume.
func unboundStatus(claim *corev1.PersistentVolumeClaim, phase corev1.PersistentVolumeClaimPhase) corev1.PersistentVolumeClaimStatus {
	now := *claim.Status.DeepCopy()
	now.Phase, now.AccessModes, now.Capacity, now.CurrentVolumeAttributesClassName = phase, nil, nil, nil
	return now
}

func sameStatus(a, b corev1.PersistentVolumeClaimStatus) bool {
	return apiequality.Semantic.DeepEqual(a, b)
}
