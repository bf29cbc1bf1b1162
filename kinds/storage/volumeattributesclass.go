package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// VolumeAttributesClasses name attributes of volumes that can change while the volume is in use.
func VolumeAttributesClasses() *kind.Def {
	type class = storagev1.VolumeAttributesClass
	return kind.Define(kind.Resource[class]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: storagev1.GroupName, Version: "v1", Kind: "VolumeAttributesClass"},
			Plural:           "volumeattributesclasses", Short: []string{"vac"}, Scope: kind.Cluster,
			Older: kind.SameLayout("v1beta1", "v1alpha1"),
		},
		Delete:   kind.Deletion[class]{ReturnsObject: true},
		Validate: validateVolumeAttributesClass,
		Columns: []kind.Column[class]{
			kind.NameColumn[class](),
			{Name: "DriverName", Description: class{}.SwaggerDoc()["driverName"], Value: func(c *class) any { return c.DriverName }},
			kind.AgeColumn[class](),
		},
	})
}
