package volumesource

import (
	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core/downwardapi"
	"proa.dev/kinds/lib/defaulting"
	"proa.dev/kinds/lib/imagereference"
)

// Default fills in what a volume of a pod leaves out. A volume without a source becomes an emptyDir.
func Default(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	if v.Image != nil {
		defaulting.IfZero(&v.Image.PullPolicy, imagereference.PullPolicy(v.Image.Reference))
	}
	if v.HostPath != nil {
		defaulting.IfNil(&v.HostPath.Type, corev1.HostPathUnset)
	}
	if v.Secret != nil {
		defaulting.IfNil(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	}
	if v.ConfigMap != nil {
		defaulting.IfNil(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	}
	if v.DownwardAPI != nil {
		defaulting.IfNil(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownwardItems(v.DownwardAPI.Items)
	}
	if v.Projected != nil {
		defaultProjected(v.Projected)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil {
		claim := &v.Ephemeral.VolumeClaimTemplate.Spec
		defaulting.IfNil(&claim.VolumeMode, corev1.PersistentVolumeFilesystem)
		defaulting.RoundUp(claim.Resources.Limits)
		defaulting.RoundUp(claim.Resources.Requests)
	}
	defaultLegacyVolume(v)
}

func defaultProjected(p *corev1.ProjectedVolumeSource) {
	defaulting.IfNil(&p.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
	for i := range p.Sources {
		if d := p.Sources[i].DownwardAPI; d != nil {
			defaultDownwardItems(d.Items)
		}
		if t := p.Sources[i].ServiceAccountToken; t != nil {
			defaulting.IfNil(&t.ExpirationSeconds, 3600)
		}
	}
}

func defaultDownwardItems(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		downwardapi.DefaultFieldRef(items[i].FieldRef)
	}
}

// defaultLegacyVolume fills in the sources that CSI drivers have replaced.
func defaultLegacyVolume(v *corev1.Volume) {
	if v.ISCSI != nil {
		defaulting.IfZero(&v.ISCSI.ISCSIInterface, "default")
	}
	if r := v.RBD; r != nil {
		defaulting.IfZero(&r.RBDPool, "rbd")
		defaulting.IfZero(&r.RadosUser, "admin")
		defaulting.IfZero(&r.Keyring, "/etc/ceph/keyring")
	}
	if d := v.AzureDisk; d != nil {
		defaulting.IfNil(&d.CachingMode, corev1.AzureDataDiskCachingReadWrite)
		defaulting.IfNil(&d.FSType, "ext4")
		defaulting.IfNil(&d.ReadOnly, false)
		defaulting.IfNil(&d.Kind, corev1.AzureSharedBlobDisk)
	}
	if s := v.ScaleIO; s != nil {
		defaulting.IfZero(&s.StorageMode, "ThinProvisioned")
		defaulting.IfZero(&s.FSType, "xfs")
	}
}
