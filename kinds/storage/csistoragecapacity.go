package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// CSIStorageCapacities report how much capacity a CSI driver has for volumes of a class in a part of the cluster.
func CSIStorageCapacities() *kind.Def {
	type capacity = storagev1.CSIStorageCapacity
	return kind.Define(kind.Resource[capacity]{
		Traits: kind.Traits{
			GroupVersionKind:        schema.GroupVersionKind{Group: storagev1.GroupName, Version: "v1", Kind: "CSIStorageCapacity"},
			Plural:                  "csistoragecapacities",
			RequiresResourceVersion: true,
		},
		Validate: validateCSIStorageCapacity,
		Warn:     warnCSIStorageCapacity,
	})
}
