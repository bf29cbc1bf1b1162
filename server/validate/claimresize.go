package validate

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// claimResize allows a larger request of a claim only when its storage class supports expansion.
func claimResize(ctx context.Context, a *kind.Admission) error {
	claim, ok := a.Object.(*corev1.PersistentVolumeClaim)
	if !ok || !a.IsUpdate() {
		return nil
	}
	old, ok := a.Old.(*corev1.PersistentVolumeClaim)
	if !ok || !requestsMore(claim, old) {
		return nil
	}
	if old.Status.Phase != corev1.ClaimBound {
		return a.Forbidf("Only bound persistent volume claims can be expanded")
	}
	if name := storageClassOf(claim); name != "" && name == storageClassOf(old) {
		o, err := a.Server.Get(ctx, schema.GroupResource{Group: storagev1.GroupName, Resource: "storageclasses"}, "", name)
		if class, ok := o.(*storagev1.StorageClass); err == nil && ok && class.AllowVolumeExpansion != nil && *class.AllowVolumeExpansion {
			return nil
		}
	}
	return a.Forbidf("only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize")
}

func requestsMore(claim, old *corev1.PersistentVolumeClaim) bool {
	size, was := claim.Spec.Resources.Requests[corev1.ResourceStorage], old.Spec.Resources.Requests[corev1.ResourceStorage]
	return size.Cmp(was) > 0
}

// storageClassOf returns the name of a claim's storage class. The annotation is older than the field, and takes
// precedence.
func storageClassOf(claim *corev1.PersistentVolumeClaim) string {
	if name, ok := claim.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}
