package core

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

// validateVolumes checks the volumes of a pod and returns the valid ones by name. meta is nil in a template.
func validateVolumes(volumes []corev1.Volume, meta *metav1.ObjectMeta, path *field.Path, allow PodAllowances) (map[string]*corev1.VolumeSource, field.ErrorList) {
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
		errs = append(errs, requiredDNSLabel(v.Name, at.Child("name"))...)
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

// choice checks a struct of which one field may be set.
type choice struct {
	at    *field.Path
	text  string // what is said when a second one is set
	found int
	errs  field.ErrorList
}

// choose checks one of the fields of a choice. The optional last argument is the name the messages about its
// parts have always used, where that is not the field's.
func choose[S any](c *choice, s *S, name string, validate func(*S, *field.Path) field.ErrorList, inside ...string) {
	if s == nil {
		return
	}
	if c.found > 0 {
		c.errs = append(c.errs, field.Forbidden(c.at.Child(name), c.text))
		return
	}
	c.found++
	if len(inside) > 0 {
		name = inside[0]
	}
	c.errs = append(c.errs, validate(s, c.at.Child(name))...)
}

func validateVolumeSource(v *corev1.Volume, at *field.Path, meta *metav1.ObjectMeta, allow PodAllowances) field.ErrorList {
	c := &choice{at: at, text: "may not specify more than 1 volume type"}
	choose(c, v.EmptyDir, "emptyDir", validateEmptyDir)
	choose(c, v.HostPath, "hostPath", validateHostPath)
	choose(c, v.GitRepo, "gitRepo", validateGitRepo)
	choose(c, v.GCEPersistentDisk, "gcePersistentDisk", validateGCEDisk, "persistentDisk")
	choose(c, v.AWSElasticBlockStore, "awsElasticBlockStore", validateAWSDisk)
	choose(c, v.Secret, "secret", validateSecretVolume)
	choose(c, v.NFS, "nfs", validateNFS)
	choose(c, v.ISCSI, "iscsi", validateISCSI)
	if i := v.ISCSI; i != nil && i.InitiatorName != nil && len(v.Name+":"+i.TargetPortal) > 64 {
		c.errs = append(c.errs, field.Invalid(at.Child("name"), v.Name,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	choose(c, v.Glusterfs, "glusterfs", validateGlusterfs)
	choose(c, v.Flocker, "flocker", validateFlocker)
	choose(c, v.PersistentVolumeClaim, "persistentVolumeClaim", validateClaimVolume)
	choose(c, v.RBD, "rbd", validateRBD)
	choose(c, v.Cinder, "cinder", validateCinder)
	choose(c, v.CephFS, "cephFS", validateCephFS, "cephfs")
	choose(c, v.Quobyte, "quobyte", validateQuobyte)
	if v.DownwardAPI != nil && c.found > 0 {
		c.errs = append(c.errs, field.Forbidden(at.Child("downwarAPI"), c.text))
	} else {
		choose(c, v.DownwardAPI, "downwardAPI", validateDownwardVolume)
	}
	choose(c, v.FC, "fc", validateFC)
	choose(c, v.FlexVolume, "flexVolume", validateFlexVolume)
	choose(c, v.ConfigMap, "configMap", validateConfigMapVolume)
	choose(c, v.AzureFile, "azureFile", validateAzureFile)
	choose(c, v.VsphereVolume, "vsphereVolume", validateVsphere)
	choose(c, v.PhotonPersistentDisk, "photonPersistentDisk", validatePhoton)
	choose(c, v.PortworxVolume, "portworxVolume", validatePortworx)
	choose(c, v.AzureDisk, "azureDisk", validateAzureDisk)
	choose(c, v.StorageOS, "storageos", validateStorageOS)
	choose(c, v.Projected, "projected", func(p *corev1.ProjectedVolumeSource, at *field.Path) field.ErrorList {
		return validateProjected(p, at, allow)
	})
	choose(c, v.ScaleIO, "scaleIO", validateScaleIO)
	choose(c, v.CSI, "csi", validateCSIVolume)
	choose(c, v.Ephemeral, "ephemeral", func(e *corev1.EphemeralVolumeSource, at *field.Path) field.ErrorList {
		return validateEphemeral(e, at, c.at.Child("name"), v.Name, meta)
	})
	choose(c, v.Image, "image", func(i *corev1.ImageVolumeSource, at *field.Path) field.ErrorList {
		return validateImageVolume(i, at, allow)
	})
	if c.found == 0 {
		c.errs = append(c.errs, field.Required(at, "must specify a volume type"))
	}
	return c.errs
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
	errs := noBacksteps(h.Path, at.Child("path"))
	return append(errs, oneOfIfSet(h.Type, at.Child("type"), corev1.HostPathUnset, corev1.HostPathBlockDev, corev1.HostPathCharDev,
		corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate, corev1.HostPathFile, corev1.HostPathFileOrCreate, corev1.HostPathSocket)...)
}

func validateSecretVolume(s *corev1.SecretVolumeSource, at *field.Path) field.ErrorList {
	errs := required(s.SecretName, at.Child("secretName"))
	errs = append(errs, fileMode(s.DefaultMode, at.Child("defaultMode"))...)
	errs = append(errs, userID(s.DefaultUser, at.Child("defaultUser"))...)
	return append(errs, validateItems(s.Items, at.Child("items"))...)
}

func validateConfigMapVolume(m *corev1.ConfigMapVolumeSource, at *field.Path) field.ErrorList {
	errs := required(m.Name, at.Child("name"))
	errs = append(errs, fileMode(m.DefaultMode, at.Child("defaultMode"))...)
	errs = append(errs, userID(m.DefaultUser, at.Child("defaultUser"))...)
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
	errs := required(item.Key, at.Child("key"))
	errs = append(errs, required(item.Path, at.Child("path"))...)
	errs = append(errs, localPath(item.Path, at.Child("path"))...)
	errs = append(errs, fileMode(item.Mode, at.Child("mode"))...)
	return append(errs, userID(item.User, at.Child("user"))...)
}

func validateClaimVolume(c *corev1.PersistentVolumeClaimVolumeSource, at *field.Path) field.ErrorList {
	return required(c.ClaimName, at.Child("claimName"))
}

// validateDownwardVolume checks files of pod fields. The errors about a file name the volume and
// not the file: they always have.
func validateDownwardVolume(d *corev1.DownwardAPIVolumeSource, at *field.Path) field.ErrorList {
	errs := fileMode(d.DefaultMode, at.Child("defaultMode"))
	errs = append(errs, userID(d.DefaultUser, at.Child("defaultUser"))...)
	for i := range d.Items {
		errs = append(errs, validateDownwardFile(&d.Items[i], at)...)
	}
	return errs
}

func validateDownwardFile(f *corev1.DownwardAPIVolumeFile, at *field.Path) field.ErrorList {
	errs := required(f.Path, at.Child("path"))
	errs = append(errs, localPath(f.Path, at.Child("path"))...)
	switch {
	case f.FieldRef != nil:
		errs = append(errs, validateFieldRef(f.FieldRef, at.Child("fieldRef"), volumeFieldPaths())...)
		if f.ResourceFieldRef != nil {
			errs = append(errs, field.Invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
		}
	case f.ResourceFieldRef != nil:
		errs = append(errs, validateResourceFieldRef(f.ResourceFieldRef, at.Child("resourceFieldRef"), true)...)
	default:
		errs = append(errs, field.Required(at, "one of fieldRef and resourceFieldRef is required"))
	}
	errs = append(errs, fileMode(f.Mode, at.Child("mode"))...)
	return append(errs, userID(f.User, at.Child("user"))...)
}

func validateCSIVolume(s *corev1.CSIVolumeSource, at *field.Path) field.ErrorList {
	errs := ValidateCSIDriverName(s.Driver, at.Child("driver"))
	if ref := s.NodePublishSecretRef; ref != nil {
		if ref.Name == "" {
			errs = append(errs, field.Required(at.Child("nodePublishSecretRef", "name"), ""))
		} else {
			errs = append(errs, dnsName(ref.Name, at.Child("name"))...)
		}
	}
	return errs
}

// ValidateCSIDriverName checks the name by which a storage driver is known.
func ValidateCSIDriverName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	var errs field.ErrorList
	if len(name) > 63 {
		errs = append(errs, field.TooLong(at, "", 63))
	}
	return append(errs, check.Messages(name, at, validation.IsDNS1123Subdomain(strings.ToLower(name)))...)
}

func validateEphemeral(e *corev1.EphemeralVolumeSource, at, name *field.Path, volume string, meta *metav1.ObjectMeta) field.ErrorList {
	var errs field.ErrorList
	if t := e.VolumeClaimTemplate; t == nil {
		errs = append(errs, field.Required(at.Child("volumeClaimTemplate"), ""))
	} else {
		at := at.Child("volumeClaimTemplate")
		errs = append(errs, validateTemplateMeta(&t.ObjectMeta, at.Child("metadata"))...)
		errs = append(errs, validateClaimTemplateSpec(&t.Spec, at.Child("spec"))...)
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
	return append(errs, onlyFields(*meta, "cannot be set", at, "Annotations", "Labels")...)
}

func validateImageVolume(i *corev1.ImageVolumeSource, at *field.Path, allow PodAllowances) field.ErrorList {
	var errs field.ErrorList
	if !allow.emptyImageReference {
		errs = required(i.Reference, at.Child("reference"))
	}
	return append(errs, validatePullPolicy(i.PullPolicy, at.Child("pullPolicy"))...)
}

func validatePullPolicy(p corev1.PullPolicy, at *field.Path) field.ErrorList {
	return oneOfOrRequired(p, at, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)
}
