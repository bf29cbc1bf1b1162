package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// CSINodes list the CSI drivers of a node.
func CSINodes() *kind.Def {
	type node = storagev1.CSINode
	return kind.Define(kind.Resource[node]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: storagev1.GroupName, Version: "v1", Kind: "CSINode"}, Plural: "csinodes",
			Scope:                   kind.Cluster,
			RequiresResourceVersion: true,
		},
		Spec:     func(n *node) any { return &n.Spec },
		Status:   func(n *node) any { return &n.Status },
		Delete:   kind.Deletion[node]{ReturnsObject: true},
		Prepare:  dropStorageHealth,
		Validate: validateCSINode,
		Subs: []kind.Sub[node]{{
			Name:  "status",
			Reset: []string{"metadata", "spec"},
			Prepare: func(n, old *node) {
				metav1.ResetObjectMetaForStatus(n, old)
				dropStorageHealth(n, old)
			},
			Validate: validateCSINodeStatus,
		}},
		Columns: []kind.Column[node]{
			kind.NameColumn[node](),
			{Name: "Drivers", Type: "integer", Description: "Drivers indicates the number of CSI drivers registered on the node",
				Value: func(n *node) any {
					return int64(len(n.Spec.Drivers))
				}},
			kind.AgeColumn[node](),
		},
	})
}

// dropStorageHealth drops the fields of a disabled feature, unless the stored object has them.
func dropStorageHealth(n, old *storagev1.CSINode) {
	if old == nil || len(old.Status.StorageHealth) == 0 {
		n.Status.StorageHealth = nil
	}
}
