// Package localvolume is the protocol between the provisioner of volumes that are folders of a node and the agent of that node. An
// agent may not read volumes that none of its Pods uses, so the work to be done on folders is written into annotations of its Node.
package localvolume

import (
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// Provisioner is the name of the provisioner in storage classes.
	Provisioner = "proa.dev/local-path"
	// ClassName is the storage class that a new cluster has.
	ClassName = "local-path"
	// Finalizer holds a volume until its folder is removed.
	Finalizer = "proa.dev/local-path"
	// NodeAnnotation is the annotation of a volume that names its node.
	NodeAnnotation = "proa.dev/local-path-node"
	// FolderAnnotation is the annotation of a Node that names the folder in which its agent keeps volumes.
	FolderAnnotation = "proa.dev/local-path-folder"
	// WorkAnnotation is the annotation of a Node that lists volumes whose folders are to be removed, or have been.
	WorkAnnotation = "proa.dev/local-path-work"
	// ProvisionedByAnnotation is the annotation of a volume that names its provisioner.
	ProvisionedByAnnotation = "pv.kubernetes.io/provisioned-by"
)

// State is the progress of the removal of a folder.
type State string

// The states: the provisioner requests the removal, the agent reports it.
const (
	Remove  State = "remove"
	Removed State = "removed"
)

// WorkOf returns the list of a Node: names of volumes and the state of each.
func WorkOf(n *corev1.Node) map[string]State {
	out := map[string]State{}
	for entry := range strings.FieldsSeq(n.Annotations[WorkAnnotation]) {
		name, state, _ := strings.Cut(entry, "=")
		out[name] = State(state)
	}
	return out
}

// SetWork writes the list into a Node, which the caller must own.
func SetWork(n *corev1.Node, work map[string]State) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(work)) {
		all = append(all, name+"="+string(work[name]))
	}
	if len(all) == 0 {
		delete(n.Annotations, WorkAnnotation)
		return
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, WorkAnnotation, strings.Join(all, " "))
}

// PathOf returns the path of a volume on a Node; empty if the Node has no folder for volumes.
func PathOf(n *corev1.Node, volume string) string {
	folder := n.Annotations[FolderAnnotation]
	if folder == "" {
		return ""
	}
	return path.Join(folder, volume)
}

// StorageClass returns the default storage class of a new cluster.
func StorageClass() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: ClassName,
			Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:   Provisioner,
		ReclaimPolicy: new(corev1.PersistentVolumeReclaimDelete), VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}
