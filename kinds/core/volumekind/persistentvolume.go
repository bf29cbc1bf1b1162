// Package volumekind declares PersistentVolumes and PersistentVolumeClaims.
package volumekind

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/check"
	"proa.dev/kinds/lib/defaulting"
)

// PersistentVolumes are pieces of storage.
func PersistentVolumes() *kind.Def {
	doc, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	type volume = corev1.PersistentVolume
	return kind.Define(kind.Resource[volume]{
		Traits: kind.Traits{
			GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "PersistentVolume"}, Plural: "persistentvolumes",
			Short: []string{"pv"}, Scope: kind.Cluster,
		},
		Spec:    func(v *volume) any { return &v.Spec },
		Status:  func(v *volume) any { return &v.Status },
		Default: defaultPersistentVolume,
		Prepare: func(v, old *volume) {
			if old == nil {
				v.Status.Phase = corev1.VolumePending
				v.Status.LastPhaseTransitionTime = new(metav1.Now())
			}
		},
		Validate: validatePersistentVolume,
		Delete:   kind.Deletion[volume]{ReturnsObject: true},
		Warn:     func(v, _ *volume) []string { return volumeWarnings(v) },
		Columns: []kind.Column[volume]{
			kind.NameColumn[volume](),
			{Name: "Capacity", Description: doc["capacity"], Value: func(v *volume) any {
				size := v.Spec.Capacity[corev1.ResourceStorage]
				return size.String()
			}},
			{Name: "Access Modes", Description: doc["accessModes"],
				Value: func(v *volume) any { return accessModesText(v.Spec.AccessModes) }},
			{Name: "Reclaim Policy", Description: doc["persistentVolumeReclaimPolicy"],
				Value: func(v *volume) any { return string(v.Spec.PersistentVolumeReclaimPolicy) }},
			{Name: "Status", Description: status["phase"], Value: func(v *volume) any {
				if v.DeletionTimestamp != nil {
					return "Terminating"
				}
				return string(v.Status.Phase)
			}},
			{Name: "Claim", Description: doc["claimRef"], Value: func(v *volume) any {
				if v.Spec.ClaimRef == nil {
					return ""
				}
				return v.Spec.ClaimRef.Namespace + "/" + v.Spec.ClaimRef.Name
			}},
			{Name: "StorageClass", Description: "StorageClass of the pv", Value: func(v *volume) any {
				if class, ok := v.Annotations[corev1.BetaStorageClassAnnotation]; ok {
					return class
				}
				return v.Spec.StorageClassName
			}},
			{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pv",
				Value: func(v *volume) any { return orUnset(v.Spec.VolumeAttributesClassName) }},
			{Name: "Reason", Description: status["reason"], Value: func(v *volume) any { return v.Status.Reason }},
			kind.AgeColumn[volume](),
			{Name: "VolumeMode", Wide: true, Description: doc["volumeMode"],
				Value: func(v *volume) any { return orUnset(v.Spec.VolumeMode) }},
		},
		Subs: []kind.Sub[volume]{{
			Name: "status", Prepare: setPhaseTime,
			Validate: func(v, _ *volume) field.ErrorList {
				return check.Required(v.ResourceVersion, field.NewPath("resourceVersion"))
			},
		}},
	})
}

// setPhaseTime sets the time of a change of the phase, unless the client did.
func setPhaseTime(v, old *corev1.PersistentVolume) {
	now, was := &v.Status, &old.Status
	switch same := now.Phase == was.Phase; {
	case same && now.LastPhaseTransitionTime == nil:
		now.LastPhaseTransitionTime = was.LastPhaseTransitionTime
	case !same && (now.LastPhaseTransitionTime == nil || now.LastPhaseTransitionTime.Equal(was.LastPhaseTransitionTime)):
		now.LastPhaseTransitionTime = new(metav1.Now())
	}
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	defaulting.IfZero(&v.Status.Phase, corev1.VolumePending)
	DefaultPersistentVolumeSpec(&v.Spec)
}

// DefaultPersistentVolumeSpec fills in what the spec of a PersistentVolume leaves out.
func DefaultPersistentVolumeSpec(s *corev1.PersistentVolumeSpec) {
	defaulting.IfZero(&s.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	defaulting.IfNil(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	DefaultInlineVolumeSpec(s)
}

// DefaultInlineVolumeSpec fills in what the spec of a volume leaves out, in a PersistentVolume or inline in a
// VolumeAttachment.
func DefaultInlineVolumeSpec(s *corev1.PersistentVolumeSpec) {
	defaulting.RoundUp(s.Capacity)
	if h := s.HostPath; h != nil {
		defaulting.IfNil(&h.Type, corev1.HostPathUnset)
	}
	if r := s.RBD; r != nil {
		defaulting.IfZero(&r.RBDPool, "rbd")
		defaulting.IfZero(&r.RadosUser, "admin")
		defaulting.IfZero(&r.Keyring, "/etc/ceph/keyring")
	}
	if i := s.ISCSI; i != nil {
		defaulting.IfZero(&i.ISCSIInterface, "default")
	}
	if a := s.AzureDisk; a != nil {
		defaulting.IfNil(&a.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		defaulting.IfNil(&a.FSType, "ext4")
		defaulting.IfNil(&a.ReadOnly, false)
		defaulting.IfNil(&a.Kind, corev1.AzureSharedBlobDisk)
	}
	if s := s.ScaleIO; s != nil {
		defaulting.IfZero(&s.StorageMode, "ThinProvisioned")
		defaulting.IfZero(&s.FSType, "xfs")
	}
}

func volumeWarnings(v *corev1.PersistentVolume) []string {
	var warnings []string
	for _, old := range []struct{ annotation, text string }{
		{corev1.BetaStorageClassAnnotation, `deprecated since v1.8; use "storageClassName" attribute instead`},
		{corev1.MountOptionAnnotation, `deprecated since v1.31; use "mountOptions" attribute instead`},
	} {
		if _, ok := v.Annotations[old.annotation]; ok {
			warnings = append(warnings, fmt.Sprintf("metadata.annotations[%s]: %s", old.annotation, old.text))
		}
	}
	if v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		warnings = append(warnings, "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.")
	}
	if a := v.Spec.NodeAffinity; a != nil && a.Required != nil {
		terms := field.NewPath("spec", "nodeAffinity", "required", "nodeSelectorTerms")
		for i, t := range a.Required.NodeSelectorTerms {
			for j, r := range t.MatchExpressions {
				if text, ok := podplacement.DeprecatedNodeLabel(r.Key); ok {
					warnings = append(warnings, fmt.Sprintf("%s: %s is %s", terms.Index(i).Child("matchExpressions").Index(j).Child("key"),
						r.Key, text))
				}
			}
		}
	}
	for _, removed := range []struct {
		set        bool
		name, text string
	}{
		{v.Spec.CephFS != nil, "cephfs", "v1.28, non-functional in v1.31+"},
		{v.Spec.PhotonPersistentDisk != nil, "photonPersistentDisk", "v1.11, non-functional in v1.16+"},
		{v.Spec.ScaleIO != nil, "scaleIO", "v1.16, non-functional in v1.22+"},
		{v.Spec.StorageOS != nil, "storageOS", "v1.22, non-functional in v1.25+"},
		{v.Spec.Glusterfs != nil, "glusterfs", "v1.25, non-functional in v1.26+"},
		{v.Spec.RBD != nil, "rbd", "v1.28, non-functional in v1.31+"},
	} {
		if removed.set {
			warnings = append(warnings, "spec."+removed.name+": deprecated in "+removed.text)
		}
	}
	return warnings
}
