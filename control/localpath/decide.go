package localpath

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/localvolume"
)

// The annotations by which the binder and the scheduler ask for a volume of a claim.
const (
	selectedNode    = "volume.kubernetes.io/selected-node"
	provisioner     = "volume.kubernetes.io/storage-provisioner"
	provisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
)

// classOf returns the name of a claim's class; the deprecated annotation takes precedence over the field.
func classOf(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// plan is what to do with a claim.
type plan struct {
	volume  *corev1.PersistentVolume
	problem string
	// reschedule is true if the scheduler has to choose another node.
	reschedule bool
}

// decide returns the volume that a claim gets. node is the one that the scheduler has chosen; nil if it does not exist.
func decide(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) plan {
	asked := cmp.Or(claim.Annotations[provisioner], claim.Annotations[provisionerBeta])
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || asked != localvolume.Provisioner || class == nil ||
		class.Provisioner != localvolume.Provisioner {
		return plan{}
	}
	waits := class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
	chosen := claim.Annotations[selectedNode]
	switch {
	case claim.Spec.Selector != nil:
		return plan{problem: "claim.Spec.Selector is not supported"}
	case claim.Spec.VolumeMode != nil && *claim.Spec.VolumeMode == corev1.PersistentVolumeBlock:
		return plan{problem: "folders of a node cannot be block devices"}
	case claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil:
		return plan{problem: "a folder of a node cannot be made from another volume or a snapshot"}
	case !waits:
		return plan{problem: "the class must have volumeBindingMode WaitForFirstConsumer, so that the node of the volume is known"}
	case chosen == "":
		return plan{}
	case node == nil:
		return plan{problem: fmt.Sprintf("node %q is gone", chosen), reschedule: true}
	case node.Annotations[localvolume.FolderAnnotation] == "":
		return plan{problem: fmt.Sprintf("node %q keeps no volumes; its agent must be one of proa", chosen), reschedule: true}
	}
	return plan{volume: volumeFor(claim, class, node)}
}

func volumeFor(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) *corev1.PersistentVolume {
	name := "pvc-" + string(claim.UID)
	host := cmp.Or(node.Labels[corev1.LabelHostname], node.Name)
	policy := corev1.PersistentVolumeReclaimDelete
	if class.ReclaimPolicy != nil {
		policy = *class.ReclaimPolicy
	}
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{localvolume.ProvisionedByAnnotation: localvolume.Provisioner,
				localvolume.NodeAnnotation: node.Name}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: localvolume.PathOf(node,
				name)}},
			AccessModes: claim.Spec.AccessModes,
			ClaimRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn,
					Values: []string{host}}},
			}}}},
		},
	}
	if policy == corev1.PersistentVolumeReclaimDelete {
		v.Finalizers = []string{localvolume.Finalizer}
	}
	return v
}

// removal is the next step in the deletion of a volume.
type removal int

const (
	keep            removal = iota
	requestRemoval          // ask the node to remove the folder
	deleteObject            // delete the object
	removeFinalizer         // remove the finalizer
)

// decideRemoval returns the next step in the deletion of a volume: the node removes the folder, the object is deleted, the
// finalizer is removed. A folder whose node was deleted needs no removal, and one whose volume is retained is kept.
func decideRemoval(v *corev1.PersistentVolume, node *corev1.Node) removal {
	if v.Annotations[localvolume.ProvisionedByAnnotation] != localvolume.Provisioner {
		return keep
	}
	finalized, deleted := slices.Contains(v.Finalizers, localvolume.Finalizer), v.DeletionTimestamp != nil
	if v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		if deleted && finalized {
			return removeFinalizer
		}
		return keep
	}
	if v.Status.Phase != corev1.VolumeReleased || deleted && !finalized {
		return keep
	}
	if node != nil && finalized {
		switch localvolume.WorkOf(node)[v.Name] {
		case localvolume.Removed:
		case localvolume.Remove:
			return keep
		default:
			return requestRemoval
		}
	}
	if !deleted {
		return deleteObject
	}
	return removeFinalizer
}

func withoutElement(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}
