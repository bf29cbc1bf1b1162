package schedule

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/gr"
	"proa.dev/kinds/kind"
)

// Annotations by which the scheduler, the volume controller and provisioners speak to each other.
const (
	annSelectedNode      = "volume.kubernetes.io/selected-node"
	annBindCompleted     = "pv.kubernetes.io/bind-completed"
	annBoundByController = "pv.kubernetes.io/bound-by-controller"
	noProvisioner        = "kubernetes.io/no-provisioner"
)

// claimName is the claim behind a volume of a pod, or "". own says that it was made for the pod.
func claimName(pod *corev1.Pod, v *corev1.Volume) (name string, own bool) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName, false
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name, true
	}
	return "", false
}

// hasClaims says that a pod has volumes behind claims.
func hasClaims(pod *corev1.Pod) bool {
	for i := range pod.Spec.Volumes {
		if name, _ := claimName(pod, &pod.Spec.Volumes[i]); name != "" {
			return true
		}
	}
	return false
}

// wantsClaim says that a pod has a volume behind the claim. It is a hint for pods that wait.
func wantsClaim(pod *corev1.Pod, _, is kind.Object) bool {
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

// foreign is an error if a claim has the name of one made for a pod, and was not.
func foreign(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim) error {
	if metav1.IsControlledBy(claim, pod) {
		return nil
	}
	return fmt.Errorf("PVC %s/%s was not created for pod %s/%s (pod is not owner)", claim.Namespace, claim.Name, pod.Namespace, pod.Name)
}

// The resources in the singular, as messages have them.
var (
	oneClaim  = schema.GroupResource{Resource: "persistentvolumeclaim"}
	oneVolume = schema.GroupResource{Resource: "persistentvolume"}
	oneClass  = schema.GroupResource{Group: "storage.k8s.io", Resource: "storageclass"}
)

func getClaim(c Cluster, namespace, name string) (*corev1.PersistentVolumeClaim, error) {
	if o, found := c.Get(gr.PersistentVolumeClaims, namespace, name); found {
		return o.(*corev1.PersistentVolumeClaim), nil
	}
	return nil, apierrors.NewNotFound(oneClaim, name)
}

func getVolume(c Cluster, name string) (*corev1.PersistentVolume, error) {
	if o, found := c.Get(gr.PersistentVolumes, "", name); found {
		return o.(*corev1.PersistentVolume), nil
	}
	return nil, apierrors.NewNotFound(oneVolume, name)
}

func getClass(c Cluster, name string) (*storagev1.StorageClass, error) {
	if o, found := c.Get(gr.StorageClasses, "", name); found {
		return o.(*storagev1.StorageClass), nil
	}
	return nil, apierrors.NewNotFound(oneClass, name)
}

func getCSINode(c Cluster, name string) *storagev1.CSINode {
	o, found := c.Get(gr.CSINodes, "", name)
	if !found {
		return nil
	}
	return o.(*storagev1.CSINode)
}

// classOf is the storage class of a claim, or "".
func classOf(claim *corev1.PersistentVolumeClaim) string {
	if name, old := claim.Annotations[corev1.BetaStorageClassAnnotation]; old {
		return name
	}
	if claim.Spec.StorageClassName != nil {
		return *claim.Spec.StorageClassName
	}
	return ""
}

// classOfVolume is the storage class of a volume, or "".
func classOfVolume(v *corev1.PersistentVolume) string {
	if name, old := v.Annotations[corev1.BetaStorageClassAnnotation]; old {
		return name
	}
	return v.Spec.StorageClassName
}

// isBound says that a claim has its volume, and that whoever bound it is done.
func isBound(claim *corev1.PersistentVolumeClaim) bool {
	_, done := claim.Annotations[annBindCompleted]
	return claim.Spec.VolumeName != "" && done
}

// isFor says that a volume is bound to a claim, or set aside for it.
func isFor(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	ref := v.Spec.ClaimRef
	return ref != nil && ref.Name == claim.Name && ref.Namespace == claim.Namespace && (ref.UID == "" || ref.UID == claim.UID)
}

// hasModes says that a volume can be mounted in all ways that a claim asks for.
func hasModes(v *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) bool {
	for _, m := range claim.Spec.AccessModes {
		if !slices.Contains(v.Spec.AccessModes, m) {
			return false
		}
	}
	return true
}

func orElse[T any](p *T, otherwise T) T {
	if p == nil {
		return otherwise
	}
	return *p
}
