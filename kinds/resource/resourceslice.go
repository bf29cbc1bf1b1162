package resource

import (
	"fmt"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
)

// ResourceSlices publish the devices of a driver.
func ResourceSlices() *kind.Def {
	type slice = resourcev1.ResourceSlice
	doc := resourcev1.ResourceSliceSpec{}.SwaggerDoc()
	node := func(s *slice) string {
		if s.Spec.NodeName == nil {
			return ""
		}
		return *s.Spec.NodeName
	}
	return kind.Define(kind.Resource[slice]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: resourcev1.GroupName, Version: "v1", Kind: "ResourceSlice"},
			Plural:           "resourceslices", Scope: kind.Cluster,
			Older:      append(kind.SameLayout("v1beta2"), kind.Older("v1beta1", sliceFromV1beta1)),
			Generation: true,
			FieldError: "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: %s",
			IndexField: resourcev1.ResourceSliceSelectorNodeName,
		},
		Spec:       func(s *slice) any { return &s.Spec },
		CountFirst: true,
		Delete:     kind.Deletion[slice]{ReturnsObject: true},
		Default: func(s *slice) {
			for i := range s.Spec.Devices {
				for j := range s.Spec.Devices[i].Taints {
					defaultTaint(&s.Spec.Devices[i].Taints[j])
				}
			}
		},
		Prepare:  prepareSlice,
		Validate: validateSlice,
		Warn: func(s, _ *slice) []string {
			if s.Spec.Driver == strings.ToLower(s.Spec.Driver) {
				return nil
			}
			return []string{fmt.Sprintf("spec.driver: driver names should be lowercase; %q contains uppercase characters", s.Spec.Driver)}
		},
		Fields: map[string]func(*slice) string{
			resourcev1.ResourceSliceSelectorNodeName: node,
			resourcev1.ResourceSliceSelectorDriver:   func(s *slice) string { return s.Spec.Driver },
			resourcev1.ResourceSliceSelectorPoolName: func(s *slice) string { return s.Spec.Pool.Name },
		},
		Columns: []kind.Column[slice]{
			kind.NameColumn[slice](),
			{Name: "Node", Description: doc["nodeName"], Value: func(s *slice) any { return node(s) }},
			{Name: "Driver", Description: doc["driver"], Value: func(s *slice) any { return s.Spec.Driver }},
			{Name: "Pool", Description: resourcev1.ResourcePool{}.SwaggerDoc()["name"],
				Value: func(s *slice) any { return s.Spec.Pool.Name }},
			kind.AgeColumn[slice](),
		},
	})
}
