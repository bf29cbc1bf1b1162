// Package volumesource defaults and validates the sources of volumes: those of pods, those of persistent volumes, and the claim templates
// of ephemeral volumes.
package volumesource

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/core/downwardapi"
	"proa.dev/kinds/lib/check"
)

// Allowances says which of today's rules the volumes of a stored pod may go on breaking.
type Allowances struct {
	NonLocalTokenPath   bool
	EmptyImageReference bool
}

// Validate checks the volumes of a pod and returns the valid ones by name. meta is nil in a template.
func Validate(volumes []corev1.Volume, meta *metav1.ObjectMeta, path *field.Path, allow Allowances) (map[string]*corev1.VolumeSource,
	field.ErrorList) {
	var all field.ErrorList
	valid := map[string]*corev1.VolumeSource{}
	created := map[string]bool{}
	if meta != nil && meta.Name != "" {
		for _, v := range volumes {
			if v.Ephemeral != nil {
				created[meta.Name+"-"+v.Name] = true
			}
		}
	}
	for i := range volumes {
		v, at := &volumes[i], path.Index(i)
		errs := validateVolumeSource(v, at, meta, allow)
		errs = append(errs, check.RequiredDNSLabel(v.Name, at.Child("name"))...)
		if valid[v.Name] != nil {
			errs = append(errs, field.Duplicate(at.Child("name"), v.Name))
		}
		if len(errs) == 0 {
			valid[v.Name] = &v.VolumeSource
		}
		all = append(all, errs...)
		if c := v.PersistentVolumeClaim; c != nil && created[c.ClaimName] {
			all = append(all, field.Invalid(at.Child("persistentVolumeClaim", "claimName"), c.ClaimName,
				"must not reference a PVC that gets created for an ephemeral volume"))
		}
	}
	return valid, all
}

func validateVolumeSource(v *corev1.Volume, at *field.Path, meta *metav1.ObjectMeta, allow Allowances) field.ErrorList {
	c := &check.Union{Path: at, TooMany: "may not specify more than 1 volume type"}
	check.UnionMember(c, v.EmptyDir, "emptyDir", validateEmptyDir)
	check.UnionMember(c, v.HostPath, "hostPath", validateHostPath)
	check.UnionMember(c, v.GitRepo, "gitRepo", validateGitRepo)
	check.UnionMember(c, v.GCEPersistentDisk, "gcePersistentDisk", validateGCEDisk, "persistentDisk")
	check.UnionMember(c, v.AWSElasticBlockStore, "awsElasticBlockStore", validateAWSDisk)
	check.UnionMember(c, v.Secret, "secret", validateSecretVolume)
	check.UnionMember(c, v.NFS, "nfs", validateNFS)
	check.UnionMember(c, v.ISCSI, "iscsi", validateISCSI)
	if i := v.ISCSI; i != nil && i.InitiatorName != nil && len(v.Name+":"+i.TargetPortal) > 64 {
		c.ErrorList = append(c.ErrorList, field.Invalid(at.Child("name"), v.Name,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	check.UnionMember(c, v.Glusterfs, "glusterfs", validateGlusterfs)
	check.UnionMember(c, v.Flocker, "flocker", validateFlocker)
	check.UnionMember(c, v.PersistentVolumeClaim, "persistentVolumeClaim", validateClaimVolume)
	check.UnionMember(c, v.RBD, "rbd", validateRBD)
	check.UnionMember(c, v.Cinder, "cinder", validateCinder)
	check.UnionMember(c, v.CephFS, "cephFS", validateCephFS, "cephfs")
	check.UnionMember(c, v.Quobyte, "quobyte", validateQuobyte)
	if v.DownwardAPI != nil && c.Found > 0 {
		c.ErrorList = append(c.ErrorList, field.Forbidden(at.Child("downwarAPI"), c.TooMany))
	} else {
		check.UnionMember(c, v.DownwardAPI, "downwardAPI", validateDownwardVolume)
	}
	check.UnionMember(c, v.FC, "fc", validateFC)
	check.UnionMember(c, v.FlexVolume, "flexVolume", validateFlexVolume)
	check.UnionMember(c, v.ConfigMap, "configMap", validateConfigMapVolume)
	check.UnionMember(c, v.AzureFile, "azureFile", validateAzureFile)
	check.UnionMember(c, v.VsphereVolume, "vsphereVolume", validateVsphere)
	check.UnionMember(c, v.PhotonPersistentDisk, "photonPersistentDisk", validatePhoton)
	check.UnionMember(c, v.PortworxVolume, "portworxVolume", validatePortworx)
	check.UnionMember(c, v.AzureDisk, "azureDisk", validateAzureDisk)
	check.UnionMember(c, v.StorageOS, "storageos", validateStorageOS)
	check.UnionMember(c, v.Projected, "projected", func(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
		return validateProjected(p, at, allow)
	})
	check.UnionMember(c, v.ScaleIO, "scaleIO", validateScaleIO)
	check.UnionMember(c, v.CSI, "csi", validateCSIVolume)
	check.UnionMember(c, v.Ephemeral, "ephemeral", func(e *corev1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
		return validateEphemeral(e, at, c.Path.Child("name"), v.Name, meta)
	})
	check.UnionMember(c, v.Image, "image", func(i *corev1.ImageVolumeSource, at *field.Path) field.ErrorList {
		return validateImageVolume(i, at, allow)
	})
	if c.Found == 0 {
		c.ErrorList = append(c.ErrorList, field.Required(at, "must specify a volume type"))
	}
	return c.ErrorList
}

func validateEmptyDir(e *corev1.EmptyDirVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if e.SizeLimit != nil && e.SizeLimit.Cmp(resource.Quantity{}) < 0 {
		errs = append(errs, field.Forbidden(at.Child("sizeLimit"), "SizeLimit field must be a valid resource quantity"))
	}
	if m := e.Mode; m != nil && (*m > 0o1777 || *m < 0) {
		errs = append(errs, field.Invalid(at.Child("mode"), *m, "must be a number between 0 and 01777 (octal), both inclusive"))
	}
	return errs
}

func validateHostPath(h *corev1.HostPathVolumeSource, at *field.Path) field.ErrorList {
	if h.Path == "" {
		return field.ErrorList{field.Required(at.Child("path"), "")}
	}
	errs := check.NoBacksteps(h.Path, at.Child("path"))
	return append(errs, check.OneOfIfSet(h.Type, at.Child("type"), corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev,
		corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate,
		corev1.HostPathSocket)...)
}

func validateSecretVolume(s *corev1.SecretVolumeSource, at *field.Path) field.ErrorList {
	errs := check.Required(s.SecretName, at.Child("secretName"))
	errs = append(errs, check.FileMode(s.DefaultMode, at.Child("defaultMode"))...)
	errs = append(errs, check.UserID(s.DefaultUser, at.Child("defaultUser"))...)
	return append(errs, validateItems(s.Items, at.Child("items"))...)
}

func validateConfigMapVolume(m *corev1.ConfigMapVolumeSource, at *field.Path) field.ErrorList {
	errs := check.Required(m.Name, at.Child("name"))
	errs = append(errs, check.FileMode(m.DefaultMode, at.Child("defaultMode"))...)
	errs = append(errs, check.UserID(m.DefaultUser, at.Child("defaultUser"))...)
	return append(errs, validateItems(m.Items, at.Child("items"))...)
}

func validateItems(items []corev1.KeyToPath, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, item := range items {
		errs = append(errs, validateItem(item, at.Index(i))...)
	}
	return errs
}

func validateItem(item corev1.KeyToPath, at *field.Path) field.ErrorList {
	errs := check.Required(item.Key, at.Child("key"))
	errs = append(errs, check.Required(item.Path, at.Child("path"))...)
	errs = append(errs, check.UnreservedPath(item.Path, at.Child("path"))...)
	errs = append(errs, check.FileMode(item.Mode, at.Child("mode"))...)
	return append(errs, check.UserID(item.User, at.Child("user"))...)
}

func validateClaimVolume(c *corev1.PersistentVolumeClaimVolumeSource, at *field.Path) field.ErrorList {
	return check.Required(c.ClaimName, at.Child("claimName"))
}

// validateDownwardVolume checks files of pod fields. Errors about a file have the path of the volume, as upstream's
// do.
func validateDownwardVolume(d *corev1.DownwardAPIVolumeSource, at *field.Path) field.ErrorList {
	errs := check.FileMode(d.DefaultMode, at.Child("defaultMode"))
	errs = append(errs, check.UserID(d.DefaultUser, at.Child("defaultUser"))...)
	for i := range d.Items {
		errs = append(errs, validateDownwardFile(&d.Items[i], at)...)
	}
	return errs
}

func validateDownwardFile(f *corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	errs := check.Required(f.Path, at.Child("path"))
	errs = append(errs, check.UnreservedPath(f.Path, at.Child("path"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, downwardapi.ValidateFieldRef(f.FieldRef, at.Child("fieldRef"), downwardapi.VolumeFields())...)
		if f.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, downwardapi.ValidateResourceFieldRef(f.ResourceFieldRef, at.Child("resourceFieldRef"), true)...)
	default:
		errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	errs = append(errs, check.FileMode(f.Mode, at.Child("mode"))...)
	return append(errs, check.UserID(f.User, at.Child("user"))...)
}

func validateCSIVolume(s *corev1.CSIVolumeSource, at *field.Path) field.ErrorList {
	errs := check.CSIDriverName(s.Driver, at.Child("driver"))
	if ref := s.NodePublishSecretRef; ref != nil {
		if ref.Name == "" {
			errs = append(errs, field.Required(at.Child("nodePublishSecretRef", "name"), ""))
		} else {
			errs = append(errs, check.DNSSubdomain(ref.Name, at.Child("name"))...)
		}
	}
	return errs
}

func validateEphemeral(e *corev1.EphemeralVolumeSource, at, name *field.Path, volume string, meta *metav1.ObjectMeta) field.ErrorList {
	var errs field.ErrorList
	if t := e.VolumeClaimTemplate; t == nil {
		errs = append(errs, field.Required(at.Child("volumeClaimTemplate"), ""))
	} else {
		at := at.Child("volumeClaimTemplate")
		errs = append(errs, validateTemplateMeta(&t.ObjectMeta, at.Child("metadata"))...)
		errs = append(errs, ValidateClaimSpec(&t.Spec, at.Child("spec"))...)
	}
	if meta != nil && meta.Name != "" && volume != "" {
		claim := meta.Name + "-" + volume
		for _, msg := range apivalidation.NameIsDNSSubdomain(claim, false) {
			errs = append(errs, field.Invalid(name, volume, fmt.Sprintf("PVC name %q: %v", claim, msg)))
		}
	}
	return errs
}

// validateTemplateMeta checks the metadata of an embedded template, which may carry labels and annotations only.
func validateTemplateMeta(meta *metav1.ObjectMeta, at *field.Path) field.ErrorList {
	errs := apivalidation.ValidateAnnotations(meta.Annotations, at.Child("annotations"))
	errs = append(errs, metavalidation.ValidateLabels(meta.Labels, at.Child("labels"))...)
	return append(errs, check.OnlyFields(*meta, "cannot be set", at, "Annotations", "Labels")...)
}

func validateImageVolume(i *corev1.ImageVolumeSource, at *field.Path, allow Allowances) field.ErrorList {
	var errs field.ErrorList
	if !allow.EmptyImageReference {
		errs = check.Required(i.Reference, at.Child("reference"))
	}
	return append(errs, check.OneOfOrRequired(i.PullPolicy, at.Child("pullPolicy"), corev1.PullAlways, corev1.PullIfNotPresent,
		corev1.PullNever)...)
}
