package core

import (
	corev1 "k8s.io/api/core/v1"
)

// defaultVolume fills in what a volume of a pod leaves out. One without any source is an empty directory.
func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Image != nil {
		orElse(&v.Image.PullPolicy, pullPolicyOf(v.Image.Reference))
	}
	if v.HostPath != nil {
		orNew(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		orNew(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		orNew(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		orNew(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardItems(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		claim := &v.Ephemeral.VolumeClaimTemplate.Spec
		orNew(&claim.VolumeMode, corev1.PersistentVolumeFilesystem)
		roundUp(claim.Resources.Limits)
		roundUp(claim.Resources.Requests)
	}
	defaultOldVolume(v)
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	orNew(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if d := p.Sources[i].DownwardAPI; d != nil {
			defaultDownwardItems(d.Items)
		}
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			orNew(&t.ExpirationSeconds, 3600)
		}
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

// defaultOldVolume fills in the sources that drivers have replaced since.
func defaultOldVolume(v *corev1.Volume) {
	if v.ISCSI != nil {
		orElse(&v.ISCSI.ISCSIInterface, "default")
	}
	if r := v.RBD; r != nil {
		orElse(&r.RBDPool, "rbd")
		orElse(&r.RadosUser, "admin")
		orElse(&r.Keyring, "/etc/ceph/keyring")
	}
	if d := v.AzureDisk; d != nil {
		orNew(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		orNew(&d.FSType, "ext4")
		orNew(&d.ReadOnly, false)
		orNew(&d.Kind, corev1.AzureSharedBlobDisk)
	}
	if s := v.ScaleIO; s != nil {
		orElse(&s.StorageMode, "ThinProvisioned")
		orElse(&s.FSType, "xfs")
	}
}
