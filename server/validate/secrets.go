package validate

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// usesSecrets says whether a pod names a secret anywhere.
func usesSecrets(s *corev1.PodSpec) bool {
	if slices.ContainsFunc(s.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return r.Name != "" }) {
		return true
	}
	for _, list := range [][]corev1.Container{s.InitContainers, s.Containers, ephemeral(&corev1.Pod{Spec: *s}).list} {
		if slices.ContainsFunc(list, containerUsesSecrets) {
			return true
		}
	}
	return slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool { return sourceUsesSecrets(&v.VolumeSource) })
}

func containerUsesSecrets(c corev1.Container) bool {
	return slices.ContainsFunc(c.EnvFrom, func(f corev1.EnvFromSource) bool { return f.SecretRef != nil && f.SecretRef.Name != "" }) ||
		slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name != ""
		})
}

func sourceUsesSecrets(s *corev1.VolumeSource) bool {
	local := func(r *corev1.LocalObjectReference) bool { return r != nil && r.Name != "" }
	switch {
	case s.AzureFile != nil:
		return s.AzureFile.SecretName != ""
	case s.CephFS != nil:
		return local(s.CephFS.SecretRef)
	case s.Cinder != nil:
		return local(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		return local(s.FlexVolume.SecretRef)
	case s.Projected != nil:
		return slices.ContainsFunc(s.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.Secret != nil && p.Secret.Name != "" })
	case s.RBD != nil:
		return local(s.RBD.SecretRef)
	case s.Secret != nil:
		return s.Secret.SecretName != ""
	case s.ScaleIO != nil:
		return local(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		return local(s.ISCSI.SecretRef)
	case s.StorageOS != nil:
		return local(s.StorageOS.SecretRef)
	case s.CSI != nil:
		return local(s.CSI.NodePublishSecretRef)
	}
	return false
}
