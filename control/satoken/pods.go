package satoken

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// uses says that a Pod names a Secret anywhere.
func uses(s *corev1.PodSpec, name string) bool {
	if slices.Contains(s.ImagePullSecrets, corev1.LocalObjectReference{Name: name}) {
		return true
	}
	for _, c := range slices.Concat(s.InitContainers, s.Containers) {
		if environment(c.EnvFrom, c.Env, name) {
			return true
		}
	}
	for _, c := range s.EphemeralContainers {
		if environment(c.EnvFrom, c.Env, name) {
			return true
		}
	}
	return slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool { return source(&v.VolumeSource, name) })
}

func environment(from []corev1.EnvFromSource, env []corev1.EnvVar, name string) bool {
	return slices.ContainsFunc(from, func(f corev1.EnvFromSource) bool { return f.SecretRef != nil && f.SecretRef.Name == name }) ||
		slices.ContainsFunc(env, func(e corev1.EnvVar) bool {
			return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name == name
		})
}

func source(s *corev1.VolumeSource, name string) bool {
	local := func(r *corev1.LocalObjectReference) bool { return r != nil && r.Name == name }
	switch {
	case s.Secret != nil:
		return s.Secret.SecretName == name
	case s.Projected != nil:
		return slices.ContainsFunc(s.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.Secret != nil && p.Secret.Name == name })
	case s.CSI != nil:
		return local(s.CSI.NodePublishSecretRef)
	case s.AzureFile != nil:
		return s.AzureFile.SecretName == name
	case s.CephFS != nil:
		return local(s.CephFS.SecretRef)
	case s.Cinder != nil:
		return local(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		return local(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		return local(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		return local(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		return local(s.ISCSI.SecretRef)
	case s.StorageOS != nil:
		return local(s.StorageOS.SecretRef)
	}
	return false
}
