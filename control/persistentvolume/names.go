package persistentvolume

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

// The annotations and finalizers that provisioners, the scheduler and this package share.
const (
	bindCompleted              = "pv.kubernetes.io/bind-completed"
	boundByController          = "pv.kubernetes.io/bound-by-controller"
	provisionedBy              = "pv.kubernetes.io/provisioned-by"
	migratedTo                 = "pv.kubernetes.io/migrated-to"
	selectedNode               = "volume.kubernetes.io/selected-node"
	provisioner                = "volume.kubernetes.io/storage-provisioner"
	provisionerBeta            = "volume.beta.kubernetes.io/storage-provisioner"
	preResize                  = "volume.alpha.kubernetes.io/pre-resize-capacity"
	defaultClassAnnotation     = "storageclass.kubernetes.io/is-default-class"
	defaultClassBetaAnnotation = "storageclass.beta.kubernetes.io/is-default-class"

	ownFinalizer      = "kubernetes.io/pv-controller"
	externalFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
)

// inTree is the prefix of the provisioners that were once built into Kubernetes.
const inTree = "kubernetes.io/"

// driverOf returns the CSI driver that has replaced a provisioner that was once built in.
func driverOf(provisioner string) (driver string, ok bool) {
	switch provisioner {
	case "kubernetes.io/aws-ebs":
		return "ebs.csi.aws.com", true
	case "kubernetes.io/azure-disk":
		return "disk.csi.azure.com", true
	case "kubernetes.io/azure-file":
		return "file.csi.azure.com", true
	case "kubernetes.io/cinder":
		return "cinder.csi.openstack.org", true
	case "kubernetes.io/gce-pd":
		return "pd.csi.storage.gke.io", true
	case "kubernetes.io/portworx-volume":
		return "pxd.portworx.com", true
	case "kubernetes.io/vsphere-volume":
		return "csi.vsphere.vmware.com", true
	}
	return "", false
}

// claimClass returns the name of a claim's class; the deprecated annotation takes precedence over the field.
func claimClass(c *corev1.PersistentVolumeClaim) string {
	if class, ok := c.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	if c.Spec.StorageClassName != nil {
		return *c.Spec.StorageClassName
	}
	return ""
}

// asksForClass reports whether a claim names a class, or explicitly none.
func asksForClass(c *corev1.PersistentVolumeClaim) bool {
	_, ok := c.Annotations[corev1.BetaStorageClassAnnotation]
	return ok || c.Spec.StorageClassName != nil
}

func volumeClass(v *corev1.PersistentVolume) string {
	if class, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
		return class
	}
	return v.Spec.StorageClassName
}

// defaultClassOf returns the default class, of several the newest; nil if there is none.
func defaultClassOf(classes []*storagev1.StorageClass) *storagev1.StorageClass {
	defaults := slices.DeleteFunc(slices.Clone(classes), func(s *storagev1.StorageClass) bool {
		return s.Annotations[defaultClassAnnotation] != "true" && s.Annotations[defaultClassBetaAnnotation] != "true"
	})
	if len(defaults) == 0 {
		return nil
	}
	return slices.MinFunc(defaults, func(a, b *storagev1.StorageClass) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// waitsForConsumer reports whether the binding mode of a class is WaitForFirstConsumer.
func waitsForConsumer(s *storagev1.StorageClass) bool {
	return s != nil && s.VolumeBindingMode != nil && *s.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// migratedAnnotations returns annotations with the one that names the CSI driver which has replaced a provisioner, or nil when nothing
// changes.
func migratedAnnotations(annotations map[string]string, names ...string) map[string]string {
	old := ""
	for _, name := range names {
		if old = annotations[name]; old != "" {
			break
		}
	}
	driver, moved := driverOf(old)
	if old == "" || annotations[migratedTo] == driver {
		return nil
	}
	out := map[string]string{}
	for k, v := range annotations {
		out[k] = v
	}
	if delete(out, migratedTo); moved {
		out[migratedTo] = driver
	}
	return out
}
