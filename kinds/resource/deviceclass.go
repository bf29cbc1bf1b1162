package resource

import (
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
)

// DeviceClasses name classes of devices that claims can request.
func DeviceClasses(h Hooks) *kind.Def {
	type class = resourcev1.DeviceClass
	return kind.Define(kind.Resource[class]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: resourcev1.GroupName, Version: "v1", Kind: "DeviceClass"},
			Plural:           "deviceclasses", Scope: kind.Cluster,
			Older:      kind.SameLayout("v1beta2", "v1beta1"),
			Generation: true,
		},
		Spec:     func(c *class) any { return &c.Spec },
		Name:     check.LongName,
		Delete:   kind.Deletion[class]{ReturnsObject: true},
		Validate: h.validateClass,
		Columns:  []kind.Column[class]{kind.NameColumn[class](), kind.AgeColumn[class]()},
	})
}
