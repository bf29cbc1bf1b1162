package core

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/kind"
)

// PersistentVolumes are pieces of storage.
func PersistentVolumes() *kind.Def {
	doc, status := corev1.PersistentVolumeSpec{}.SwaggerDoc(), corev1.PersistentVolumeStatus{}.SwaggerDoc()
	type volume = corev1.PersistentVolume
	return kind.Define(kind.Resource[volume]{
		Version: "v1", Kind: "PersistentVolume", Plural: "persistentvolumes", Short: []string{"pv"}, Scope: kind.Cluster,
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
		Delete:   kind.Deletion[volume]{Returns: true},
		Warn:     func(v, _ *volume) []string { return volumeWarnings(v) },
		Columns: []kind.Column[volume]{
			kind.NameColumn[volume](),
			{Name: "Capacity", Description: doc["capacity"], Value: func(v *volume) any {
				size := v.Spec.Capacity[corev1.ResourceStorage]
				return size.String()
			}},
			{Name: "Access Modes", Description: doc["accessModes"], Value: func(v *volume) any { return accessModes(v.Spec.AccessModes) }},
			{Name: "Reclaim Policy", Description: doc["persistentVolumeReclaimPolicy"], Value: func(v *volume) any { return string(v.Spec.PersistentVolumeReclaimPolicy) }},
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
			{Name: "VolumeAttributesClass", Description: "VolumeAttributesClass of the pv", Value: func(v *volume) any { return orUnset(v.Spec.VolumeAttributesClassName) }},
			{Name: "Reason", Description: status["reason"], Value: func(v *volume) any { return v.Status.Reason }},
			kind.AgeColumn[volume](),
			{Name: "VolumeMode", Wide: true, Description: doc["volumeMode"], Value: func(v *volume) any { return orUnset(v.Spec.VolumeMode) }},
		},
		Subs: []kind.Sub[volume]{{
			Name: "status", Prepare: stampPhase,
			Validate: func(v, _ *volume) field.ErrorList {
				return required(v.ResourceVersion, field.NewPath("resourceVersion"))
			},
		}},
	})
}

// stampPhase remembers when the phase changed, unless the client says it.
func stampPhase(v, old *corev1.PersistentVolume) {
	now, was := &v.Status, &old.Status
	switch same := now.Phase == was.Phase; {
	case same && now.LastPhaseTransitionTime == nil:
		now.LastPhaseTransitionTime = was.LastPhaseTransitionTime
	case !same && (now.LastPhaseTransitionTime == nil || now.LastPhaseTransitionTime.Equal(was.LastPhaseTransitionTime)):
		now.LastPhaseTransitionTime = new(metav1.Now())
	}
}

func defaultPersistentVolume(v *corev1.PersistentVolume) {
	orElse(&v.Status.Phase, corev1.VolumePending)
	DefaultPersistentVolumeSpec(&v.Spec)
}

// DefaultPersistentVolumeSpec fills in what the spec of a volume leaves out, inside a volume.
func DefaultPersistentVolumeSpec(s *corev1.PersistentVolumeSpec) {
	orElse(&s.PersistentVolumeReclaimPolicy, corev1.PersistentVolumeReclaimRetain)
	orNew(&s.VolumeMode, corev1.PersistentVolumeFilesystem)
	DefaultInlineVolumeSpec(s)
}

// DefaultInlineVolumeSpec fills in what the spec of a volume leaves out wherever it stands.
func DefaultInlineVolumeSpec(s *corev1.PersistentVolumeSpec) {
	roundUp(s.Capacity)
	if h := s.HostPath; h != nil {
		orNew(&h.Type, corev1.HostPathUnset)
	}
	if r := s.RBD; r != nil {
		orElse(&r.RBDPool, "rbd")
		orElse(&r.RadosUser, "admin")
		orElse(&r.Keyring, "/etc/ceph/keyring")
	}
	if i := s.ISCSI; i != nil {
		orElse(&i.ISCSIInterface, "default")
	}
	if a := s.AzureDisk; a != nil {
		orNew(&a.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		orNew(&a.FSType, "ext4")
		orNew(&a.ReadOnly, false)
		orNew(&a.Kind, corev1.AzureSharedBlobDisk)
	}
	if s := s.ScaleIO; s != nil {
		orElse(&s.StorageMode, "ThinProvisioned")
		orElse(&s.FSType, "xfs")
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
				if text, ok := oldNodeLabel(r.Key); ok {
					warnings = append(warnings, fmt.Sprintf("%s: %s is %s", terms.Index(i).Child("matchExpressions").Index(j).Child("key"), r.Key, text))
				}
			}
		}
	}
	for _, gone := range []struct {
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
		if gone.set {
			warnings = append(warnings, "spec."+gone.name+": deprecated in "+gone.text)
		}
	}
	return warnings
}

// oldNodeLabel says what replaced a label of nodes.
func oldNodeLabel(label string) (text string, ok bool) {
	switch label {
	case "beta.kubernetes.io/arch", "beta.kubernetes.io/os":
		return `deprecated since v1.14; use "` + label[len("beta."):] + `" instead`, true
	case "failure-domain.beta.kubernetes.io/region":
		return `deprecated since v1.17; use "topology.kubernetes.io/region" instead`, true
	case "failure-domain.beta.kubernetes.io/zone":
		return `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`, true
	case "beta.kubernetes.io/instance-type":
		return `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`, true
	case "app.kubernetes.io/created-by":
		return "deprecated since v1.9", true
	case avoidPodsAnnotation:
		return "deprecated since v1.22; use Taints and Tolerations instead", true
	case "node-role.kubernetes.io/master":
		return `use "node-role.kubernetes.io/control-plane" instead`, true
	}
	return "", false
}
