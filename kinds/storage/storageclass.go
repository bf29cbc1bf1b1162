package storage

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
)

// StorageClasses name ways to provision volumes.
func StorageClasses() *kind.Def {
	type class = storagev1.StorageClass
	doc := class{}.SwaggerDoc()
	return kind.Define(kind.Resource[class]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: storagev1.GroupName, Version: "v1", Kind: "StorageClass"},
			Plural:           "storageclasses", Short: []string{"sc"}, Scope: kind.Cluster,
		},
		Delete:   kind.Deletion[class]{ReturnsObject: true},
		Default:  defaultStorageClass,
		Validate: validateStorageClass,
		Warn:     warnStorageClass,
		InList:   markDefault,
		Columns: []kind.Column[class]{
			kind.NameColumn[class](),
			{Name: "Provisioner", Description: doc["provisioner"], Value: func(c *class) any { return c.Provisioner }},
			{Name: "ReclaimPolicy", Description: doc["reclaimPolicy"], Value: func(c *class) any {
				return string(ptr.Deref(c.ReclaimPolicy, corev1.PersistentVolumeReclaimDelete))
			}},
			{Name: "VolumeBindingMode", Description: doc["volumeBindingMode"], Value: func(c *class) any {
				return string(ptr.Deref(c.VolumeBindingMode, storagev1.VolumeBindingImmediate))
			}},
			{Name: "AllowVolumeExpansion", Description: doc["allowVolumeExpansion"],
				Value: func(c *class) any { return ptr.Deref(c.AllowVolumeExpansion, false) }},
			kind.AgeColumn[class](),
		},
	})
}

// markDefault marks the default class, which claims without a class get: the newest of those that are annotated as
// default.
func markDefault(all []*storagev1.StorageClass) func(*storagev1.StorageClass, []any) {
	var chosen *storagev1.StorageClass
	for _, c := range all {
		if c.Annotations["storageclass.kubernetes.io/is-default-class"] != "true" &&
			c.Annotations["storageclass.beta.kubernetes.io/is-default-class"] != "true" {
			continue
		}
		if chosen == nil || c.CreationTimestamp.After(chosen.CreationTimestamp.Time) ||
			c.CreationTimestamp.Equal(&chosen.CreationTimestamp) && c.Name < chosen.Name {
			chosen = c
		}
	}
	return func(c *storagev1.StorageClass, row []any) {
		if chosen != nil && c.Name == chosen.Name {
			row[0] = c.Name + " (default)"
		}
	}
}

func defaultStorageClass(c *storagev1.StorageClass) {
	if c.ReclaimPolicy == nil {
		c.ReclaimPolicy = new(corev1.PersistentVolumeReclaimDelete)
	}
	if c.VolumeBindingMode == nil {
		c.VolumeBindingMode = new(storagev1.VolumeBindingImmediate)
	}
}
