// Package localpath has the words with which the provisioner of volumes that are folders of a node and the agent of that node
// speak to each other. An agent may not see volumes that no Pod of its uses, so what is to be done about folders is written on
// its Node.
package localpath

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
	// Provisioner is who makes the volumes, as classes name it.
	Provisioner = "proa.dev/local-path"
	// ClassName is the class that a cluster has from the beginning.
	ClassName = "local-path"
	// Finalizer keeps a volume until its folder is removed.
	Finalizer = "proa.dev/local-path"
	// Node is the annotation of a volume that names its node.
	Node = "proa.dev/local-path-node"
	// Folder is the annotation of a Node that names the folder in which its agent keeps volumes.
	Folder = "proa.dev/local-path-folder"
	// Work is the annotation of a Node that lists volumes whose folders are to be removed, or were.
	Work = "proa.dev/local-path-work"
	// ProvisionedBy is the annotation of a volume that names who made it.
	ProvisionedBy = "pv.kubernetes.io/provisioned-by"
)

// State is how far the removal of a folder is.
type State string

// The states: the provisioner asks, the agent answers.
const (
	Remove  State = "remove"
	Removed State = "removed"
)

// WorkOf reads the list of a Node: names of volumes and the state of each.
func WorkOf(n *corev1.Node) map[string]State {
	out := map[string]State{}
	for entry := range strings.FieldsSeq(n.Annotations[Work]) {
		name, state, _ := strings.Cut(entry, "=")
		out[name] = State(state)
	}
	return out
}

// SetWork writes the list into a Node, which must be the caller's own copy.
func SetWork(n *corev1.Node, work map[string]State) {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(work)) {
		all = append(all, name+"="+string(work[name]))
	}
	if len(all) == 0 {
		delete(n.Annotations, Work)
		return
	}
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, Work, strings.Join(all, " "))
}

// PathOf is the path of a volume on a Node; empty if the Node keeps none.
func PathOf(n *corev1.Node, volume string) string {
	folder := n.Annotations[Folder]
	if folder == "" {
		return ""
	}
	return path.Join(folder, volume)
}

// Class is the class that claims get if they name none.
func Class() *storagev1.StorageClass {
	return &storagev1.StorageClass{
		ObjectMeta:    metav1.ObjectMeta{Name: ClassName, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner:   Provisioner,
		ReclaimPolicy: new(corev1.PersistentVolumeReclaimDelete), VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
}
