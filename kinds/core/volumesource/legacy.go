package volumesource

import (
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// CSI drivers have replaced the sources in this file; their fields are still validated.

func validateGitRepo(g *corev1.GitRepoVolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(g.Repository, at.Child("repository")), check.DescendingPath(g.Directory, at.Child("directory"))...)
}

func partition(n int32, at *field.Path) field.ErrorList {
	if n < 0 || n > 255 {
		return field.ErrorList{field.Invalid(at, n, validation.InclusiveRangeError(1, 255))}
	}
	return nil
}

func validateGCEDisk(d *corev1.GCEPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(d.PDName, at.Child("pdName")), partition(d.Partition, at.Child("partition"))...)
}

func validateAWSDisk(d *corev1.AWSElasticBlockStoreVolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(d.VolumeID, at.Child("volumeID")), partition(d.Partition, at.Child("partition"))...)
}

func validateNFS(n *corev1.NFSVolumeSource, at *field.Path) field.ErrorList {
	errs := append(check.Required(n.Server, at.Child("server")), check.Required(n.Path, at.Child("path"))...)
	if !path.IsAbs(n.Path) {
		errs = append(errs, field.Invalid(at.Child("path"), n.Path, "must be an absolute path"))
	}
	return errs
}

// iscsiNames are the three forms of an iSCSI name by their prefix.
var iscsiNames = sync.OnceValue(func() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{
		"iqn": regexp.MustCompile(`iqn\.\d{4}-\d{2}\.([[:alnum:]-.]+)(:[^,;*&$|\s]+)$`),
		"eui": regexp.MustCompile(`^eui.[[:alnum:]]{16}$`),
		"naa": regexp.MustCompile(`^naa.[[:alnum:]]{32}$`),
	}
})

func validateISCSIName(name string, at *field.Path) field.ErrorList {
	for prefix, form := range iscsiNames() {
		if strings.HasPrefix(name, prefix) {
			if !form.MatchString(name) {
				return field.ErrorList{field.Invalid(at, name, "must be valid format")}
			}
			return nil
		}
	}
	return field.ErrorList{field.Invalid(at, name, "must be valid format starting with iqn, eui, or naa")}
}

func validateISCSI(i *corev1.ISCSIVolumeSource, at *field.Path) field.ErrorList {
	errs := check.Required(i.TargetPortal, at.Child("targetPortal"))
	if i.IQN == "" {
		errs = append(errs, field.Required(at.Child("iqn"), ""))
	} else {
		errs = append(errs, validateISCSIName(i.IQN, at.Child("iqn"))...)
	}
	errs = append(errs, check.InRange(i.Lun, 0, 255, at.Child("lun"))...)
	if (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil {
		errs = append(errs, field.Required(at.Child("secretRef"), ""))
	}
	if i.InitiatorName != nil {
		errs = append(errs, validateISCSIName(*i.InitiatorName, at.Child("initiatorname"))...)
	}
	return errs
}

func validateGlusterfs(g *corev1.GlusterfsVolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(g.EndpointsName, at.Child("endpoints")), check.Required(g.Path, at.Child("path"))...)
}

func validateFlocker(f *corev1.FlockerVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if f.DatasetName == "" && f.DatasetUUID == "" {
		errs = append(errs, field.Required(at, "one of datasetName and datasetUUID is required"))
	}
	if f.DatasetName != "" && f.DatasetUUID != "" {
		errs = append(errs, field.Invalid(at, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
	}
	if strings.Contains(f.DatasetName, "/") {
		errs = append(errs, field.Invalid(at.Child("datasetName"), f.DatasetName, "must not contain '/'"))
	}
	return errs
}

func validateRBD(r *corev1.RBDVolumeSource, at *field.Path) field.ErrorList {
	return append(validateMonitors(r.CephMonitors, at), check.Required(r.RBDImage, at.Child("image"))...)
}

func validateMonitors(monitors []string, at *field.Path) field.ErrorList {
	if len(monitors) == 0 {
		return field.ErrorList{field.Required(at.Child("monitors"), "")}
	}
	return nil
}

func secretRefNamed(ref *corev1.LocalObjectReference, at *field.Path) field.ErrorList {
	if ref == nil {
		return nil
	}
	return check.Required(ref.Name, at.Child("secretRef", "name"))
}

func validateCinder(c *corev1.CinderVolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(c.VolumeID, at.Child("volumeID")), secretRefNamed(c.SecretRef, at)...)
}

func validateCephFS(c *corev1.CephFSVolumeSource, at *field.Path) field.ErrorList {
	return validateMonitors(c.Monitors, at)
}

func validateQuobyte(q *corev1.QuobyteVolumeSource, at *field.Path) field.ErrorList {
	const pairs = "must be a host:port pair or multiple pairs separated by commas"
	var errs field.ErrorList
	switch {
	case q.Registry == "":
		errs = append(errs, field.Required(at.Child("registry"), pairs))
	case len(q.Tenant) >= 65:
		errs = append(errs, field.Required(at.Child("tenant"), "must be a UUID and may not exceed a length of 64 characters"))
	default:
		for pair := range strings.SplitSeq(q.Registry, ",") {
			if _, _, err := net.SplitHostPort(pair); err != nil {
				errs = append(errs, field.Invalid(at.Child("registry"), q.Registry, pairs))
			}
		}
	}
	return append(errs, check.Required(q.Volume, at.Child("volume"))...)
}

func validateFC(f *corev1.FCVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(f.TargetWWNs) == 0 && len(f.WWIDs) == 0 {
		errs = append(errs, field.Required(at.Child("targetWWNs"), "must specify either targetWWNs or wwids, but not both"))
	}
	if len(f.TargetWWNs) != 0 && len(f.WWIDs) != 0 {
		errs = append(errs, field.Invalid(at.Child("targetWWNs"), f.TargetWWNs, "targetWWNs and wwids can not be specified simultaneously"))
	}
	if len(f.TargetWWNs) == 0 {
		return errs
	}
	if f.Lun == nil {
		return append(errs, field.Required(at.Child("lun"), "lun is required if targetWWNs is specified"))
	}
	return append(errs, check.InRange(*f.Lun, 0, 255, at.Child("lun"))...)
}

func validateFlexVolume(f *corev1.FlexVolumeSource, at *field.Path) field.ErrorList {
	errs := check.Required(f.Driver, at.Child("driver"))
	for _, option := range slices.Sorted(maps.Keys(f.Options)) {
		namespace, _, _ := strings.Cut(option, "/")
		namespace = "." + strings.ToLower(namespace)
		if strings.HasSuffix(namespace, ".kubernetes.io") || strings.HasSuffix(namespace, ".k8s.io") {
			errs = append(errs, field.Invalid(at.Child("options").Key(option), option, "kubernetes.io and k8s.io namespaces are reserved"))
		}
	}
	return errs
}

func validateAzureFile(a *corev1.AzureFileVolumeSource, at *field.Path) field.ErrorList {
	return append(check.Required(a.SecretName, at.Child("secretName")), check.Required(a.ShareName, at.Child("shareName"))...)
}

func validateVsphere(v *corev1.VsphereVirtualDiskVolumeSource, at *field.Path) field.ErrorList {
	return check.Required(v.VolumePath, at.Child("volumePath"))
}

func validatePhoton(p *corev1.PhotonPersistentDiskVolumeSource, at *field.Path) field.ErrorList {
	return check.Required(p.PdID, at.Child("pdID"))
}

func validatePortworx(p *corev1.PortworxVolumeSource, at *field.Path) field.ErrorList {
	return check.Required(p.VolumeID, at.Child("volumeID"))
}

func validateAzureDisk(a *corev1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := append(check.Required(a.DiskName, at.Child("diskName")), check.Required(a.DataDiskURI, at.Child("diskURI"))...)
	errs = append(errs, check.OneOfIfSet(a.CachingMode, at.Child("cachingMode"),
		corev1.AzureDataDiskCachingNone, corev1.AzureDataDiskCachingReadOnly, corev1.AzureDataDiskCachingReadWrite)...)
	errs = append(errs, check.OneOfIfSet(a.Kind, at.Child("kind"), corev1.AzureDedicatedBlobDisk, corev1.AzureManagedDisk,
		corev1.AzureSharedBlobDisk)...)
	if a.Kind == nil {
		return errs
	}
	prefix, form := "https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
	if *a.Kind == corev1.AzureManagedDisk {
		prefix, form = "/subscriptions/", "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
	}
	if !strings.HasPrefix(a.DataDiskURI, prefix) {
		errs = append(errs, field.NotSupported(at.Child("diskURI"), a.DataDiskURI, []string{form}))
	}
	return errs
}

func validateStorageOS(s *corev1.StorageOSVolumeSource, at *field.Path) field.ErrorList {
	errs := check.RequiredDNSLabel(s.VolumeName, at.Child("volumeName"))
	if s.VolumeNamespace != "" {
		errs = append(errs, check.DNSLabel(s.VolumeNamespace, at.Child("volumeNamespace"))...)
	}
	return append(errs, secretRefNamed(s.SecretRef, at)...)
}

func validateScaleIO(s *corev1.ScaleIOVolumeSource, at *field.Path) field.ErrorList {
	errs := append(check.Required(s.Gateway, at.Child("gateway")), check.Required(s.System, at.Child("system"))...)
	return append(errs, check.Required(s.VolumeName, at.Child("volumeName"))...)
}
