package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
)

// CSINodes say which storage drivers run on a node.
func CSINodes() *kind.Def {
	type node = storagev1.CSINode
	return kind.Define(kind.Resource[node]{
		Group: storagev1.GroupName, Version: "v1", Kind: "CSINode", Plural: "csinodes", Scope: kind.Cluster,
		Spec:        func(n *node) any { return &n.Spec },
		Status:      func(n *node) any { return &n.Status },
		Conditional: true,
		Delete:      kind.Deletion[node]{Returns: true},
		Prepare:     dropStorageHealth,
		Validate:    validateCSINode,
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
			{Name: "Drivers", Type: "integer", Description: "Drivers indicates the number of CSI drivers registered on the node", Value: func(n *node) any {
				return int64(len(n.Spec.Drivers))
			}},
			kind.AgeColumn[node](),
		},
	})
}

// dropStorageHealth removes what belongs to a feature that is off, unless it is stored already.
func dropStorageHealth(n, old *storagev1.CSINode) {
	if old == nil || len(old.Status.StorageHealth) == 0 {
		n.Status.StorageHealth = nil
	}
}
