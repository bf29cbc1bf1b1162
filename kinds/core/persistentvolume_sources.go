package core

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"proa.dev/kinds/check"
)

// validatePersistentSource wants exactly one source. Most sources of persistent volumes obey the rules of the
// same source in a pod; those that name secrets name their namespace too.
func validatePersistentSource(s *corev1.PersistentVolumeSpec, name string, inline bool, at *field.Path) field.ErrorList {
	c := &choice{at: at, text: "may not specify more than 1 volume type"}
	choose(c, s.HostPath, "hostPath", validateHostPath)
	choose(c, s.GCEPersistentDisk, "gcePersistentDisk", validateGCEDisk, "persistentDisk")
	choose(c, s.AWSElasticBlockStore, "awsElasticBlockStore", validateAWSDisk)
	choose(c, s.Glusterfs, "glusterfs", validatePersistentGlusterfs)
	choose(c, s.Flocker, "flocker", validateFlocker)
	choose(c, s.NFS, "nfs", validateNFS)
	choose(c, s.RBD, "rbd", func(r *corev1.RBDPersistentVolumeSource, at *field.Path) field.ErrorList {
		return append(someMonitors(r.CephMonitors, at), required(r.RBDImage, at.Child("image"))...)
	})
	choose(c, s.Quobyte, "quobyte", validateQuobyte)
	choose(c, s.CephFS, "cephFS", func(f *corev1.CephFSPersistentVolumeSource, at *field.Path) field.ErrorList {
		return someMonitors(f.Monitors, at)
	}, "cephfs")
	choose(c, s.ISCSI, "iscsi", func(i *corev1.ISCSIPersistentVolumeSource, at *field.Path) field.ErrorList {
		return validatePersistentISCSI(i, name, at)
	})
	choose(c, s.Cinder, "cinder", func(d *corev1.CinderPersistentVolumeSource, at *field.Path) field.ErrorList {
		return append(required(d.VolumeID, at.Child("volumeID")), secretNamed(d.SecretRef, at.Child("secretRef"))...)
	})
	choose(c, s.FC, "fc", validateFC)
	if f := s.FlexVolume; f != nil { // it alone has never minded company
		c.found++
		c.errs = append(c.errs, validateFlexVolume(&corev1.FlexVolumeSource{Driver: f.Driver, Options: f.Options}, at.Child("flexVolume"))...)
	}
	choose(c, s.AzureFile, "azureFile", validatePersistentAzureFile)
	choose(c, s.VsphereVolume, "vsphereVolume", validateVsphere)
	choose(c, s.PhotonPersistentDisk, "photonPersistentDisk", validatePhoton)
	choose(c, s.PortworxVolume, "portworxVolume", validatePortworx)
	choose(c, s.AzureDisk, "azureDisk", validateAzureDisk)
	choose(c, s.ScaleIO, "scaleIO", func(o *corev1.ScaleIOPersistentVolumeSource, at *field.Path) field.ErrorList {
		return needed(at, "gateway", o.Gateway, "system", o.System, "volumeName", o.VolumeName)
	})
	choose(c, s.Local, "local", func(l *corev1.LocalVolumeSource, at *field.Path) field.ErrorList {
		errs := required(l.Path, at.Child("path"))
		errs = append(errs, noBacksteps(l.Path, at.Child("path"))...)
		if s.NodeAffinity == nil || inline {
			errs = append(errs, field.Required(c.at.Child("nodeAffinity"), "Local volume requires node affinity"))
		}
		return errs
	})
	choose(c, s.StorageOS, "storageos", validatePersistentStorageOS)
	choose(c, s.CSI, "csi", validatePersistentCSI)
	if c.found == 0 {
		c.errs = append(c.errs, field.Required(at, "must specify a volume type"))
	}
	return c.errs
}

func validatePersistentGlusterfs(g *corev1.GlusterfsPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := needed(at, "endpoints", g.EndpointsName, "path", g.Path)
	if ns := g.EndpointsNamespace; ns != nil {
		if *ns == "" {
			errs = append(errs, field.Invalid(at.Child("endpointsNamespace"), *ns, "if the endpointnamespace is set, it must be a valid namespace name"))
		} else {
			errs = append(errs, check.Messages(*ns, at.Child("endpointsNamespace"), apivalidation.ValidateNamespaceName(*ns, false))...)
		}
	}
	return errs
}

// validatePersistentISCSI checks what a pod's own iSCSI volume checks, in nearly the same words.
func validatePersistentISCSI(i *corev1.ISCSIPersistentVolumeSource, volume string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, required(i.TargetPortal, at.Child("targetPortal"))...)
	if i.InitiatorName != nil && len(volume+":"+i.TargetPortal) > 64 {
		errs = append(errs, field.Invalid(at.Child("targetportal"), i.TargetPortal,
			"Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified."))
	}
	name := func(s string, at *field.Path) {
		for _, e := range iscsiName(s, at) {
			e.Detail = "must be valid format"
			errs = append(errs, e)
		}
	}
	if i.IQN == "" {
		errs = append(errs, field.Required(at.Child("iqn"), ""))
	} else {
		name(i.IQN, at.Child("iqn"))
	}
	errs = append(errs, inRange(i.Lun, 0, 255, at.Child("lun"))...)
	if (i.DiscoveryCHAPAuth || i.SessionCHAPAuth) && i.SecretRef == nil {
		errs = append(errs, field.Required(at.Child("secretRef"), ""))
	}
	if i.SecretRef != nil {
		errs = append(errs, required(i.SecretRef.Name, at.Child("secretRef", "name"))...)
	}
	if i.InitiatorName != nil {
		name(*i.InitiatorName, at.Child("initiatorname"))
	}
	return errs
}

func validatePersistentAzureFile(a *corev1.AzureFilePersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := needed(at, "secretName", a.SecretName, "shareName", a.ShareName)
	if a.SecretNamespace != nil {
		errs = append(errs, required(*a.SecretNamespace, at.Child("secretNamespace"))...)
	}
	return errs
}

func validatePersistentStorageOS(s *corev1.StorageOSPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := requiredDNSLabel(s.VolumeName, at.Child("volumeName"))
	if s.VolumeNamespace != "" {
		errs = append(errs, dnsLabel(s.VolumeNamespace, at.Child("volumeNamespace"))...)
	}
	if r := s.SecretRef; r != nil {
		errs = append(errs, needed(at.Child("secretRef"), "name", r.Name, "namespace", r.Namespace)...)
	}
	return errs
}

func secretNamed(r *corev1.SecretReference, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	return needed(at, "name", r.Name, "namespace", r.Namespace)
}

func validatePersistentCSI(s *corev1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := ValidateCSIDriverName(s.Driver, at.Child("driver"))
	errs = append(errs, required(s.VolumeHandle, at.Child("volumeHandle"))...)
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
			errs = append(errs, subdomain(ref.secret.Name, path.Child("name"))...)
		}
		errs = append(errs, requiredDNSLabel(ref.secret.Namespace, path.Child("namespace"))...)
	}
	return errs
}
