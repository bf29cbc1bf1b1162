package storage

import (
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"proa.dev/kinds/core/volumekind"
	"proa.dev/kinds/kind"
)

// VolumeAttachments ask for a volume to be attached to a node.
func VolumeAttachments() *kind.Def {
	type attachment = storagev1.VolumeAttachment
	doc := storagev1.VolumeAttachmentSpec{}.SwaggerDoc()
	return kind.Define(kind.Resource[attachment]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Group: storagev1.GroupName, Version: "v1", Kind: "VolumeAttachment"},
			Plural:           "volumeattachments", Scope: kind.Cluster,
			RequiresResourceVersion: true,
		},
		Spec:   func(a *attachment) any { return &a.Spec },
		Status: func(a *attachment) any { return &a.Status },
		Delete: kind.Deletion[attachment]{ReturnsObject: true},
		Default: func(a *attachment) {
			if s := a.Spec.Source.InlineVolumeSpec; s != nil {
				volumekind.DefaultInlineVolumeSpec(s)
			}
		},
		Validate: validateVolumeAttachment,
		Subs: []kind.Sub[attachment]{{
			Name:     "status",
			Reset:    []string{"metadata", "spec"},
			Prepare:  func(a, old *attachment) { metav1.ResetObjectMetaForStatus(a, old) },
			Validate: validateVolumeAttachment,
		}},
		Columns: []kind.Column[attachment]{
			kind.NameColumn[attachment](),
			{Name: "Attacher", Format: "name", Description: doc["attacher"], Value: func(a *attachment) any { return a.Spec.Attacher }},
			{Name: "PV", Description: storagev1.VolumeAttachmentSource{}.SwaggerDoc()["persistentVolumeName"],
				Value: func(a *attachment) any {
					return ptr.Deref(a.Spec.Source.PersistentVolumeName, "")
				}},
			{Name: "Node", Description: doc["nodeName"], Value: func(a *attachment) any { return a.Spec.NodeName }},
			{Name: "Attached", Type: "boolean", Description: storagev1.VolumeAttachmentStatus{}.SwaggerDoc()["attached"],
				Value: func(a *attachment) any {
					return a.Status.Attached
				}},
			kind.AgeColumn[attachment](),
		},
	})
}
