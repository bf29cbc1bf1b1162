// Package storagemigration holds the kinds of the storagemigration.k8s.io group.
package storagemigration

import "proa.dev/kinds/kind"

// All lists the kinds of the group.
func All() []*kind.Def {
	return []*kind.Def{
		StorageVersionMigrations(),
	}
}
