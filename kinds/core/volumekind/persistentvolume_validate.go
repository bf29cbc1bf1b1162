package volumekind

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/podplacement"
	"proa.dev/kinds/core/volumesource"
	"proa.dev/kinds/lib/check"
)

func validatePersistentVolume(v, old *corev1.PersistentVolume) field.ErrorList {
	anyValue := old != nil && old.Spec.NodeAffinity != nil && old.Spec.NodeAffinity.Required != nil &&
		hasInvalidLabelValue(old.Spec.NodeAffinity.Required)
	errs := ValidatePersistentVolumeSpec(&v.Spec, v.Name, false, anyValue, field.NewPath("spec"))
	errs = append(errs, validateMountOptions(v)...)
	if old != nil {
		errs = append(errs, validateVolumeChange(v, old)...)
	}
	return errs
}

// validateMountOptions refuses the mount options annotation for sources that do not support mount options.
func validateMountOptions(v *corev1.PersistentVolume) field.ErrorList {
	s := &v.Spec
	if s.GCEPersistentDisk != nil || s.AWSElasticBlockStore != nil || s.Glusterfs != nil || s.NFS != nil || s.RBD != nil ||
		s.Quobyte != nil || s.ISCSI != nil || s.Cinder != nil || s.CephFS != nil || s.AzureFile != nil ||
		s.VsphereVolume != nil || s.AzureDisk != nil || s.PhotonPersistentDisk != nil {
		return nil
	}
	if _, ok := v.Annotations[corev1.MountOptionAnnotation]; !ok {
		return nil
	}
	return field.ErrorList{field.Forbidden(field.NewPath("metadata", "annotations", corev1.MountOptionAnnotation),
		"may not specify mount options for this volume type")}
}

// validateVolumeChange keeps the source of a volume immutable but for a secret that is added, its mode, and its node
// affinity but for replacing deprecated labels.
func validateVolumeChange(v, old *corev1.PersistentVolume) field.ErrorList {
	var errs field.ErrorList
	now, was := v.Spec.PersistentVolumeSource, old.Spec.PersistentVolumeSource
	if was.CSI != nil && was.CSI.ControllerExpandSecretRef == nil && now.CSI != nil && now.CSI.ControllerExpandSecretRef != nil {
		csi := *now.CSI
		csi.ControllerExpandSecretRef = nil
		now.CSI = &csi
	}
	if !equality.Semantic.DeepEqual(now, was) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "persistentvolumesource"),
			"spec.persistentvolumesource is immutable after creation\n"+check.GoFieldsDiff(was, now)))
	}
	errs = append(errs, check.Immutable(v.Spec.VolumeMode, old.Spec.VolumeMode, field.NewPath("volumeMode"))...)
	if old.Spec.NodeAffinity != nil && !equalAffinity(v.Spec.NodeAffinity, old.Spec.NodeAffinity) {
		errs = append(errs, field.Invalid(field.NewPath("nodeAffinity"), check.GoFields(v.Spec.NodeAffinity),
			apivalidation.FieldImmutableErrorMsg+", except for updating from beta label to GA"))
	}
	if old.Spec.VolumeAttributesClassName != nil && v.Spec.VolumeAttributesClassName == nil {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "volumeAttributesClassName"),
			"update from non-nil value to nil is forbidden"))
	}
	return errs
}

// equalAffinity compares node affinities, taking a deprecated label in old for equal to its replacement in now.
func equalAffinity(now, old *corev1.VolumeNodeAffinity) bool {
	if now == nil || now.Required == nil || old.Required == nil {
		return equality.Semantic.DeepEqual(now, old)
	}
	modern := map[string]string{
		corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
		corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
		"beta.kubernetes.io/os":             corev1.LabelOSStable,
		"beta.kubernetes.io/arch":           corev1.LabelArchStable,
		corev1.LabelInstanceType:            corev1.LabelInstanceTypeStable,
	}
	old = old.DeepCopy()
	rename := func(was, is []corev1.NodeSelectorRequirement) {
		for i := range was {
			if i < len(is) && was[i].Key != is[i].Key && modern[was[i].Key] == is[i].Key {
				was[i].Key = is[i].Key
			}
		}
	}
	for i := range old.Required.NodeSelectorTerms {
		if i < len(now.Required.NodeSelectorTerms) {
			is := &now.Required.NodeSelectorTerms[i]
			rename(old.Required.NodeSelectorTerms[i].MatchExpressions, is.MatchExpressions)
			rename(old.Required.NodeSelectorTerms[i].MatchFields, is.MatchFields)
		}
	}
	return equality.Semantic.DeepEqual(now, old)
}

// ValidatePersistentVolumeSpec checks the spec of a volume. inline says that it is that of a VolumeAttachment, in
// which fewer fields are allowed; anyValue allows values in the node affinity that no label can have.
func ValidatePersistentVolumeSpec(s *corev1.PersistentVolumeSpec, name string, inline, anyValue bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if inline {
		errs = append(errs, validateInline(s, at)...)
	}
	if len(s.AccessModes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), ""))
	}
	errs = append(errs, validateAccessModes(s.AccessModes, at.Child("accessModes"))...)
	if !inline {
		errs = append(errs, validateCapacity(s.Capacity, at.Child("capacity"))...)
	}
	if policy := s.PersistentVolumeReclaimPolicy; policy != "" {
		if !inline {
			errs = append(errs, check.OneOf(policy, at.Child("persistentVolumeReclaimPolicy"), corev1.PersistentVolumeReclaimDelete,
				corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain)...)
		} else if policy != corev1.PersistentVolumeReclaimRetain {
			errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"),
				"may only be Retain in the context of inline volumes"))
		}
	}
	if a := s.NodeAffinity; a != nil {
		switch affinity := at.Child("nodeAffinity"); {
		case inline:
			errs = append(errs, field.Forbidden(affinity, "may not be specified in the context of inline volumes"))
		case a.Required == nil:
			errs = append(errs, field.Required(affinity.Child("required"), "must specify required node constraints"))
		default:
			errs = append(errs, podplacement.ValidateNodeSelector(a.Required, anyValue, affinity.Child("required"))...)
		}
	}
	errs = append(errs, volumesource.ValidatePersistent(s, name, inline, at)...)
	if h := s.HostPath; h != nil && path.Clean(h.Path) == "/" && s.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimRecycle {
		errs = append(errs, field.Forbidden(at.Child("persistentVolumeReclaimPolicy"), "may not be 'recycle' for a hostPath mount of '/'"))
	}
	return append(errs, validateVolumeClass(s, inline, at)...)
}

func validateInline(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.ClaimRef != nil {
		errs = append(errs, field.Forbidden(at.Child("claimRef"), "may not be specified in the context of inline volumes"))
	}
	if len(s.Capacity) != 0 {
		errs = append(errs, field.Forbidden(at.Child("capacity"), "may not be specified in the context of inline volumes"))
	}
	if s.CSI == nil {
		errs = append(errs, field.Required(at.Child("csi"), "has to be specified in the context of inline volumes"))
	}
	return errs
}

func validateAccessModes(modes []corev1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	known := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce, corev1.ReadWriteOncePod}
	var errs field.ErrorList
	once, other := false, false
	for _, m := range modes {
		errs = append(errs, check.OneOf(m, at, known...)...)
		once = once || m == corev1.ReadWriteOncePod
		other = other || m != corev1.ReadWriteOncePod && slices.Contains(known, m)
	}
	if once && other {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

func validateCapacity(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(list) == 0 {
		errs = append(errs, field.Required(at, ""))
	}
	if _, ok := list[corev1.ResourceStorage]; !ok || len(list) > 1 {
		errs = append(errs, field.NotSupported(at, list, []corev1.ResourceName{corev1.ResourceStorage}))
	}
	for name, size := range list {
		errs = append(errs, check.NonNegativeQuantity(size, at.Key(string(name)))...)
		errs = append(errs, check.PositiveQuantity(size, at.Key(string(name)))...)
	}
	return errs
}

func validateVolumeClass(s *corev1.PersistentVolumeSpec, inline bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.StorageClassName != "" {
		if inline {
			errs = append(errs, field.Forbidden(at.Child("storageClassName"), "may not be specified in the context of inline volumes"))
		} else {
			errs = append(errs, check.DNSSubdomain(s.StorageClassName, at.Child("storageClassName"))...)
		}
	}
	if mode := s.VolumeMode; mode != nil {
		if !inline {
			errs = append(errs, check.OneOf(*mode, at.Child("volumeMode"), corev1.PersistentVolumeBlock,
				corev1.PersistentVolumeFilesystem)...)
		} else if *mode != corev1.PersistentVolumeFilesystem {
			errs = append(errs, field.Forbidden(at.Child("volumeMode"), "may not specify volumeMode other than Filesystem in the context of inline volumes"))
		}
	}
	if class := s.VolumeAttributesClassName; class != nil {
		if *class == "" {
			errs = append(errs, field.Required(at.Child("volumeAttributesClassName"), "an empty string is disallowed"))
		} else {
			errs = append(errs, check.DNSSubdomain(*class, at.Child("volumeAttributesClassName"))...)
		}
		if s.CSI == nil {
			errs = append(errs, field.Required(at.Child("csi"), "has to be specified when using volumeAttributesClassName"))
		}
	}
	return errs
}

// hasInvalidLabelValue reports whether a stored selector has a value that no label can have, which an update may keep.
func hasInvalidLabelValue(s *corev1.NodeSelector) bool {
	for _, t := range s.NodeSelectorTerms {
		for _, r := range t.MatchExpressions {
			for _, v := range r.Values {
				if len(validation.IsValidLabelValue(v)) > 0 {
					return true
				}
			}
		}
	}
	return false
}
