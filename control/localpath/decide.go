package localpath

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/localpath"
)

// The annotations with which claims ask for a volume.
const (
	selectedNode    = "volume.kubernetes.io/selected-node"
	provisioner     = "volume.kubernetes.io/storage-provisioner"
	provisionerBeta = "volume.beta.kubernetes.io/storage-provisioner"
)

// classOf is the name of a claim's class; an old annotation goes before the field.
func classOf(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// plan is what to do about a claim.
type plan struct {
	volume  *corev1.PersistentVolume
	problem string
	// elsewhere says that the scheduler has to find another node.
	elsewhere bool
}

// decide says which volume a claim gets. The node is the one that the scheduler has chosen; nil if there is none.
func decide(claim *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, node *corev1.Node) plan {
	asked := cmp.Or(claim.Annotations[provisioner], claim.Annotations[provisionerBeta])
	if claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil || asked != localpath.Provisioner || class == nil || class.Provisioner != localpath.Provisioner {
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
		return plan{problem: fmt.Sprintf("node %q is gone", chosen), elsewhere: true}
	case node.Annotations[localpath.Folder] == "":
		return plan{problem: fmt.Sprintf("node %q keeps no volumes; its agent must be one of proa", chosen), elsewhere: true}
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
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{localpath.ProvisionedBy: localpath.Provisioner, localpath.Node: node.Name}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: localpath.PathOf(node, name)}},
			AccessModes:                   claim.Spec.AccessModes,
			ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
			PersistentVolumeReclaimPolicy: policy,
			StorageClassName:              class.Name,
			MountOptions:                  class.MountOptions,
			VolumeMode:                    new(corev1.PersistentVolumeFilesystem),
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
			}}}},
		},
	}
	if policy == corev1.PersistentVolumeReclaimDelete {
		v.Finalizers = []string{localpath.Finalizer}
	}
	return v
}

// removal is the next step on the way of a volume out of the cluster.
type removal int

const (
	stay    removal = iota
	ask             // the node is asked to remove the folder
	drop            // the object is deleted
	release         // the deletion is let go on
)

// decideRemoval says what to do about a volume. The order is: the node removes the folder, the object is deleted, we let it
// go. A folder whose node is gone is gone with it, and one whose volume is to be retained is not touched.
func decideRemoval(v *corev1.PersistentVolume, node *corev1.Node) removal {
	if v.Annotations[localpath.ProvisionedBy] != localpath.Provisioner {
		return stay
	}
	ours, deleted := slices.Contains(v.Finalizers, localpath.Finalizer), v.DeletionTimestamp != nil
	if v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
		if deleted && ours {
			return release
		}
		return stay
	}
	if v.Status.Phase != corev1.VolumeReleased || deleted && !ours {
		return stay
	}
	if node != nil && ours {
		switch localpath.WorkOf(node)[v.Name] {
		case localpath.Removed:
		case localpath.Remove:
			return stay
		default:
			return ask
		}
	}
	if !deleted {
		return drop
	}
	return release
}

func without(list []string, one string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == one })
}
