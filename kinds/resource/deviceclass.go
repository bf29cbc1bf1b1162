package resource

import (
	resourcev1 "k8s.io/api/resource/v1"

	"proa.dev/kinds/check"
	"proa.dev/kinds/kind"
)

// DeviceClasses name sorts of devices that claims can ask for.
func DeviceClasses(h Hooks) *kind.Def {
	type class = resourcev1.DeviceClass
	return kind.Define(kind.Resource[class]{
		Group: resourcev1.GroupName, Version: "v1", Kind: "DeviceClass", Plural: "deviceclasses", Scope: kind.Cluster,
		Older:      kind.SameLayout("v1beta2", "v1beta1"),
		Spec:       func(c *class) any { return &c.Spec },
		Generation: true,
		Name:       check.LongName,
		Delete:     kind.Deletion[class]{Returns: true},
		Validate:   h.validateClass,
		Columns:    []kind.Column[class]{kind.NameColumn[class](), kind.AgeColumn[class]()},
	})
}
