package mutate

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"proa.dev/kinds/kind"
)

// protectStorage adds the finalizers that keep volumes, claims and their classes while they are in use; a controller
// removes them afterwards.
func protectStorage(_ context.Context, a *kind.Admission) error {
	var finalizer string
	switch a.Object.(type) {
	case *corev1.PersistentVolume:
		finalizer = "kubernetes.io/pv-protection"
	case *corev1.PersistentVolumeClaim:
		finalizer = "kubernetes.io/pvc-protection"
	case *storagev1.VolumeAttributesClass:
		finalizer = "kubernetes.io/vac-protection"
	default:
		return nil
	}
	if f := a.Object.GetFinalizers(); a.IsCreate() && !slices.Contains(f, finalizer) {
		a.Object.SetFinalizers(append(f, finalizer))
	}
	return nil
}

// defaultStorageClass sets the default storage class on a new claim that names none. An empty name counts as a name.
func defaultStorageClass(ctx context.Context, a *kind.Admission) error {
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !a.IsCreate() || claim.Spec.StorageClassName != nil {
		return nil
	}
	if _, named := claim.Annotations[corev1.BetaStorageClassAnnotation]; named {
		return nil
	}
	classes, err := list[*storagev1.StorageClass](ctx, a, storagev1.GroupName, "storageclasses", "")
	if err != nil {
		return a.Forbid(err)
	}
	if class := newestDefault(classes, "storageclass.kubernetes.io/is-default-class",
		"storageclass.beta.kubernetes.io/is-default-class"); class != nil {
		claim.Spec.StorageClassName = new(class.GetName())
	}
	return nil
}
