package storage

import (
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/kind"
)

// CSIDrivers describe the capabilities of CSI drivers.
func CSIDrivers() *kind.Def {
	type driver = storagev1.CSIDriver
	doc := storagev1.CSIDriverSpec{}.SwaggerDoc()
	flag := func(name, field string, value func(*storagev1.CSIDriverSpec) *bool, otherwise bool) kind.Column[driver] {
		return kind.Column[driver]{Name: name, Type: "boolean", Description: doc[field],
			Value: func(d *driver) any { return ptr.Deref(value(&d.Spec), otherwise) }}
	}
	return kind.Define(kind.Resource[driver]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: storagev1.GroupName, Version: "v1", Kind: "CSIDriver"}, Plural: "csidrivers",
			Scope:                   kind.Cluster,
			Generation:              true,
			RequiresResourceVersion: true,
		},
		Spec:       func(d *driver) any { return &d.Spec },
		Unnumbered: true,
		Delete:     kind.Deletion[driver]{ReturnsObject: true},
		Default:    defaultCSIDriver,
		Validate:   validateCSIDriver,
		Warn:       warnCSIDriver,
		Columns: []kind.Column[driver]{
			kind.NameColumn[driver](),
			flag("AttachRequired", "attachRequired", func(s *storagev1.CSIDriverSpec) *bool { return s.AttachRequired }, true),
			flag("PodInfoOnMount", "podInfoOnMount", func(s *storagev1.CSIDriverSpec) *bool { return s.PodInfoOnMount }, false),
			flag("StorageCapacity", "storageCapacity", func(s *storagev1.CSIDriverSpec) *bool { return s.StorageCapacity }, false),
			{Name: "TokenRequests", Description: doc["tokenRequests"],
				Value: func(d *driver) any { return tokenAudiences(d.Spec.TokenRequests) }},
			flag("RequiresRepublish", "requiresRepublish", func(s *storagev1.CSIDriverSpec) *bool { return s.RequiresRepublish }, false),
			{Name: "Modes", Description: doc["volumeLifecycleModes"], Value: func(d *driver) any {
				if len(d.Spec.VolumeLifecycleModes) == 0 {
					return "<none>"
				}
				modes := make([]string, len(d.Spec.VolumeLifecycleModes))
				for i, m := range d.Spec.VolumeLifecycleModes {
					modes[i] = string(m)
				}
				return strings.Join(modes, ",")
			}},
			kind.AgeColumn[driver](),
		},
	})
}

func tokenAudiences(requests []storagev1.TokenRequest) string {
	if requests == nil {
		return "<unset>"
	}
	audiences := make([]string, len(requests))
	for i, r := range requests {
		audiences[i] = r.Audience
	}
	return strings.Join(audiences, ",")
}

func defaultCSIDriver(d *storagev1.CSIDriver) {
	s := &d.Spec
	for _, f := range []struct {
		flag  **bool
		value bool
	}{
		{&s.AttachRequired, true}, {&s.PodInfoOnMount, false}, {&s.StorageCapacity, false},
		{&s.RequiresRepublish, false}, {&s.SELinuxMount, false}, {&s.PreventPodSchedulingIfMissing, false},
	} {
		if *f.flag == nil {
			*f.flag = new(f.value)
		}
	}
	if s.FSGroupPolicy == nil {
		s.FSGroupPolicy = new(storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy)
	}
	if len(s.VolumeLifecycleModes) == 0 {
		s.VolumeLifecycleModes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
}

// warnCSIDriver recommends passing service account tokens to a driver as secrets when the driver starts to request
// them.
func warnCSIDriver(d, old *storagev1.CSIDriver) []string {
	if old != nil && equality.Semantic.DeepEqual(old.Spec.TokenRequests, d.Spec.TokenRequests) {
		return nil
	}
	if len(d.Spec.TokenRequests) == 0 || d.Spec.ServiceAccountTokenInSecrets != nil {
		return nil
	}
	return []string{tokenInSecretsRecommended}
}
