// Package volumes has the plugins about volumes: VolumeBinding, VolumeRestrictions, NodeVolumeLimits and VolumeZone.
package volumes

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/schedule/framework"
)

// The annotations that the scheduler, the volume controller and provisioners use.
const (
	annSelectedNode      = "volume.kubernetes.io/selected-node"
	annBindCompleted     = "pv.kubernetes.io/bind-completed"
	annBoundByController = "pv.kubernetes.io/bound-by-controller"
	noProvisioner        = "kubernetes.io/no-provisioner"
)

// claimName returns the name of the claim of a volume, or "". own reports that the claim is created for the Pod (an
// ephemeral volume).
func claimName(pod *corev1.Pod, v *corev1.Volume) (name string, own bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, false
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, true
	}
	return "", false
}

// hasClaims reports whether a Pod has volumes with claims.
func hasClaims(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if name, _ := claimName(pod, &pod.Spec.Volumes[i]); name != "" {
			return true
		}
	}
	return false
}

// isOwnClaim is a queueing hint that reports whether a Pod has a volume with the claim.
func isOwnClaim(pod *corev1.Pod, _, is kind.Object) bool {
	if is == nil || is.GetNamespace() != pod.Namespace {
		return false
	}
	for i := range pod.Spec.Volumes {
		if name, _ := claimName(pod, &pod.Spec.Volumes[i]); name == is.GetName() {
			return true
		}
	}
	return false
}

// checkOwner returns an error if the claim of an ephemeral volume was not created for the Pod.
func checkOwner(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) error {
	if metav1.IsControlledBy(claim, pod) {
		return nil
	}
	return fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name)
}

// The resources in the singular, for upstream's messages.
var (
	oneClaim  = schema.GroupResource{Resource: "persistentvolumeclaim"}
	oneVolume = schema.GroupResource{Resource: "persistentvolume"}
	oneClass  = schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclass"}
)

func getClaim(c framework.Cluster, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if o, found := c.Get(gr.PersistentVolumeClaims, namespace, name); found {
		return o.(*corev1.PersistentVolumeClaim), nil
	}
	return nil, apierrors.NewNotFound(oneClaim, name)
}

func getVolume(c framework.Cluster, name string) (*corev1.PersistentVolume, error) {
	if o, found := c.Get(gr.PersistentVolumes, "", name); found {
		return o.(*corev1.PersistentVolume), nil
	}
	return nil, apierrors.NewNotFound(oneVolume, name)
}

func getClass(c framework.Cluster, name string) (*storagev1.StorageClass, error) {
	if o, found := c.Get(gr.StorageClasses, "", name); found {
		return o.(*storagev1.StorageClass), nil
	}
	return nil, apierrors.NewNotFound(oneClass, name)
}

func getCSINode(c framework.Cluster, name string) *storagev1.CSINode {
	o, found := c.Get(gr.CSINodes, "", name)
	if !found {
		return nil
	}
	return o.(*storagev1.CSINode)
}

// storageClassOf returns the storage class of a claim, or "".
func storageClassOf(claim *corev1.PersistentVolumeClaim) string {
	if name, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; old {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}

// storageClassOfVolume returns the storage class of a volume, or "".
func storageClassOfVolume(v *corev1.PersistentVolume) string {
	if name, old := v.Annotations[corev1.BetaStorageClassAnnotation]; old {
		return name
	}
	return v.Spec.StorageClassName
}

// isBound reports whether a claim is bound to a volume completely.
func isBound(claim *corev1.PersistentVolumeClaim) bool {
	_, done := claim.Annotations[annBindCompleted]
	return claim.Spec.VolumeName != "" && done
}

// isReservedFor reports whether a volume is bound to a claim, or reserved for it.
func isReservedFor(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == claim.Name && ref.Namespace == claim.Namespace && (ref.UID == "" || ref.UID == claim.UID)
}

// supportsAccessModes reports whether a volume has all access modes that a claim requests.
func supportsAccessModes(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	for _, m := range claim.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, m) {
			return false
		}
	}
	return true
}
