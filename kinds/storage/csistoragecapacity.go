package storage

import (
	storagev1 "k8s.io/api/storage/v1"

	"proa.dev/kinds/kind"
)

// CSIStorageCapacities say how much room a driver has for volumes of a class in a part of the cluster.
func CSIStorageCapacities() *kind.Def {
	type capacity = storagev1.CSIStorageCapacity
	return kind.Define(kind.Resource[capacity]{
		Group: storagev1.GroupName, Version: "v1", Kind: "CSIStorageCapacity", Plural: "csistoragecapacities",
		Conditional: true,
		Validate:    validateCSIStorageCapacity,
		Warn:        warnCSIStorageCapacity,
	})
}
