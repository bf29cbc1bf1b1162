// Package storage holds the kinds of the storage.k8s.io group.
package storage

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		CSIDrivers(),
		CSINodes(),
		CSIStorageCapacities(),
		StorageClasses(),
		VolumeAttachments(),
		VolumeAttributesClasses(),
	}
}
