package storagemigration

import (
	storagemigrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateMigration(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	return nil
}

func validateMigrationStatus(m, old *storagemigrationv1.StorageVersionMigration) field.ErrorList {
	return nil
}
