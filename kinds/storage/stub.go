package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const tokenInSecretsRecommended = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible logging of tokens in volume attributes"

func validateStorageClass(c, old *storagev1.StorageClass) field.ErrorList { return nil }
func warnStorageClass(c, old *storagev1.StorageClass) []string            { return nil }
func validateVolumeAttributesClass(c, old *storagev1.VolumeAttributesClass) field.ErrorList {
	return nil
}
func validateVolumeAttachment(c, old *storagev1.VolumeAttachment) field.ErrorList     { return nil }
func validateCSINode(c, old *storagev1.CSINode) field.ErrorList                       { return nil }
func validateCSINodeStatus(c, old *storagev1.CSINode) field.ErrorList                 { return nil }
func validateCSIDriver(c, old *storagev1.CSIDriver) field.ErrorList                   { return nil }
func validateCSIStorageCapacity(c, old *storagev1.CSIStorageCapacity) field.ErrorList { return nil }
func warnCSIStorageCapacity(c, old *storagev1.CSIStorageCapacity) []string            { return nil }
