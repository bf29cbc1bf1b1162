package volumesource

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/lib/check"
)

// ValidatePersistent requires exactly one source. Most sources of persistent volumes have the rules of the same
// source in a pod; references to secrets have a namespace too.
func ValidatePersistent(s *corev1.PersistentVolumeSpec, name string, inline bool, at *field.Path) field.ErrorList {
	c := &check.Union{Path: at, TooMany: "may not specify more than 1 volume type"}
	check.UnionMember(c, s.HostPath, "hostPath", validateHostPath)
	check.UnionMember(c, s.GCEPersistentDisk, "gcePersistentDisk", validateGCEDisk, "persistentDisk")
	check.UnionMember(c, s.AWSElasticBlockStore, "awsElasticBlockStore", validateAWSDisk)
	check.UnionMember(c, s.Glusterfs, "glusterfs", validatePersistentGlusterfs)
	check.UnionMember(c, s.Flocker, "flocker", validateFlocker)
	check.UnionMember(c, s.NFS, "nfs", validateNFS)
	check.UnionMember(c, s.RBD, "rbd", func(r *corev1.RBDPersistentVolumeSource, at *field.Path) field.ErrorList {
		return append(validateMonitors(r.CephMonitors, at), check.Required(r.RBDImage, at.Child("image"))...)
	})
	check.UnionMember(c, s.Quobyte, "quobyte", validateQuobyte)
	check.UnionMember(c, s.CephFS, "cephFS", func(f *corev1.CephFSPersistentVolumeSource, at *field.Path) field.ErrorList {
		return validateMonitors(f.Monitors, at)
	}, "cephfs")
	check.UnionMember(c, s.ISCSI, "iscsi", func(i *corev1.ISCSIPersistentVolumeSource, at *field.Path) field.ErrorList {
		return validatePersistentISCSI(i, name, at)
	})
	check.UnionMember(c, s.Cinder, "cinder", func(d *corev1.CinderPersistentVolumeSource, at *field.Path) field.ErrorList {
		return append(check.Required(d.VolumeID, at.Child("volumeID")), validateSecretReference(d.SecretRef, at.Child("secretRef"))...)
	})
	check.UnionMember(c, s.FC, "fc", validateFC)
	if f := s.FlexVolume; f != nil { // upstream allows it beside another source
		c.Found++
		c.ErrorList = append(c.ErrorList,
			validateFlexVolume(&corev1.FlexVolumeSource{Driver: f.Driver, Options: f.Options}, at.Child("flexVolume"))...)
	}
	check.UnionMember(c, s.AzureFile, "azureFile", validatePersistentAzureFile)
	check.UnionMember(c, s.VsphereVolume, "vsphereVolume", validateVsphere)
	check.UnionMember(c, s.PhotonPersistentDisk, "photonPersistentDisk", validatePhoton)
	check.UnionMember(c, s.PortworxVolume, "portworxVolume", validatePortworx)
	check.UnionMember(c, s.AzureDisk, "azureDisk", validateAzureDisk)
	check.UnionMember(c, s.ScaleIO, "scaleIO", func(o *corev1.ScaleIOPersistentVolumeSource, at *field.Path) field.ErrorList {
		return check.RequiredFields(at, "gateway", o.Gateway, "system", o.System, "volumeName", o.VolumeName)
	})
	check.UnionMember(c, s.Local, "local", func(l *corev1.LocalVolumeSource, at *field.Path) field.ErrorList {
		errs := check.Required(l.Path, at.Child("path"))
		errs = append(errs, check.NoBacksteps(l.Path, at.Child("path"))...)
		if s.NodeAffinity == nil || inline {
			errs = append(errs, field.Required(c.Path.Child("nodeAffinity"), "Local volume requires node affinity"))
		}
		return errs
	})
	check.UnionMember(c, s.StorageOS, "storageos", validatePersistentStorageOS)
	check.UnionMember(c, s.CSI, "csi", validatePersistentCSI)
	if c.Found == 0 {
		c.ErrorList = append(c.ErrorList, field.Required(at, "must specify a volume type"))
	}
	return c.ErrorList
}

func validatePersistentGlusterfs(g *corev1.GlusterfsPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := check.RequiredFields(at, "endpoints", g.EndpointsName, "path", g.Path)
	if ns := g.EndpointsNamespace; ns != nil {
		if *ns == "" {
			errs = append(errs, field.Invalid(at.Child("endpointsNamespace"), *ns,
				"if the endpointnamespace is set, it must be a valid namespace name"))
		} else {
			errs = append(errs, check.Messages(*ns, at.Child("endpointsNamespace"), apivalidation.ValidateNamespaceName(*ns, false))...)
		}
	}
	return errs
}

// validatePersistentISCSI checks what is checked of an iSCSI volume of a pod, with nearly the same messages.
func validatePersistentISCSI(i *corev1.ISCSIPersistentVolumeSource, volume string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, check.Required(i.TargetPortal, at.Child("targetPortal"))...)
	if i.InitiatorName != nil && len(volume+":"+i.TargetPortal) > 64 {
		errs = append(errs, field.Invalid(at.Child("targetportal"), i.TargetPortal,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	name := func(s string, at *field.Path) {
		for _, e := range validateISCSIName(s, at) {
			e.Detail = "must be valid format"
			errs = append(errs, e)
		}
	}
	if i.IQN == "" {
		errs = append(errs, field.Required(at.Child("iqn"), ""))
	} else {
		name(i.IQN, at.Child("iqn"))
	}
	errs = append(errs, check.InRange(i.Lun, 0, 255, at.Child("lun"))...)
	if (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil {
		errs = append(errs, field.Required(at.Child("secretRef"), ""))
	}
	if i.SecretRef != nil {
		errs = append(errs, check.Required(i.SecretRef.Name, at.Child("secretRef", "name"))...)
	}
	if i.InitiatorName != nil {
		name(*i.InitiatorName, at.Child("initiatorname"))
	}
	return errs
}

func validatePersistentAzureFile(a *corev1.AzureFilePersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := check.RequiredFields(at, "secretName", a.SecretName, "shareName", a.ShareName)
	if a.SecretNamespace != nil {
		errs = append(errs, check.Required(*a.SecretNamespace, at.Child("secretNamespace"))...)
	}
	return errs
}

func validatePersistentStorageOS(s *corev1.StorageOSPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := check.RequiredDNSLabel(s.VolumeName, at.Child("volumeName"))
	if s.VolumeNamespace != "" {
		errs = append(errs, check.DNSLabel(s.VolumeNamespace, at.Child("volumeNamespace"))...)
	}
	if r := s.SecretRef; r != nil {
		errs = append(errs, check.RequiredFields(at.Child("secretRef"), "name", r.Name, "namespace", r.Namespace)...)
	}
	return errs
}

func validateSecretReference(r *corev1.SecretReference, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	return check.RequiredFields(at, "name", r.Name, "namespace", r.Namespace)
}

func validatePersistentCSI(s *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := check.CSIDriverName(s.Driver, at.Child("driver"))
	errs = append(errs, check.Required(s.VolumeHandle, at.Child("volumeHandle"))...)
	for _, ref := range []struct {
		name   string
		secret *corev1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef},
		{"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		if ref.secret == nil {
			continue
		}
		path := at.Child(ref.name)
		if ref.secret.Name == "" {
			errs = append(errs, field.Required(path.Child("name"), ""))
		} else {
			errs = append(errs, check.DNSSubdomain(ref.secret.Name, path.Child("name"))...)
		}
		errs = append(errs, check.RequiredDNSLabel(ref.secret.Namespace, path.Child("namespace"))...)
	}
	return errs
}
