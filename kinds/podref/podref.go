// Package podref says which other objects of the API a pod names. Plugins that must not overlook one ask here, so that a
// new way to name an object is learnt in one place.
package podref

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// containers are all containers of a pod.
func containers(s *corev1.PodSpec) []corev1.Container {
	all := slices.Concat(s.InitContainers, s.Containers)
	for i := range s.EphemeralContainers {
		all = append(all, corev1.Container(s.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// Secrets says whether a pod names a secret anywhere.
func Secrets(s *corev1.PodSpec) bool {
	if slices.ContainsFunc(s.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return r.Name != "" }) {
		return true
	}
	return slices.ContainsFunc(containers(s), containerUsesSecrets) || slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool { return sourceUsesSecrets(&v.VolumeSource) })
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

// ConfigMaps says whether a pod names a ConfigMap anywhere.
func ConfigMaps(s *corev1.PodSpec) bool {
	uses := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.EnvFrom, func(f corev1.EnvFromSource) bool { return f.ConfigMapRef != nil && f.ConfigMapRef.Name != "" }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name != ""
			})
	}
	return slices.ContainsFunc(containers(s), uses) || slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name != "" || v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool { return p.ConfigMap != nil && p.ConfigMap.Name != "" })
	})
}

// Any names the first resource of the API that a pod needs an object of, as refusals show it; empty for none. A volume that
// is of no known kind is an error: nobody can say what it needs.
func Any(s *corev1.PodSpec) (string, error) {
	switch {
	case s.ServiceAccountName != "":
		return "serviceaccounts", nil
	case Secrets(s):
		return "secrets", nil
	case ConfigMaps(s):
		return "configmaps", nil
	case len(s.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range s.Volumes {
		if what, err := volume(&s.Volumes[i]); what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

func volume(v *corev1.Volume) (string, error) {
	switch s := v.VolumeSource; {
	case s.ConfigMap != nil:
		return "configmaps (via configmap volumes)", nil
	case s.Secret != nil:
		return "secrets (via secret volumes)", nil
	case s.CSI != nil:
		return "csidrivers (via CSI volumes)", nil
	case s.Glusterfs != nil:
		return "endpoints (via glusterFS volumes)", nil
	case s.PersistentVolumeClaim != nil:
		return "persistentvolumeclaims", nil
	case s.Ephemeral != nil:
		return "persistentvolumeclaims (via ephemeral volumes)", nil
	case s.AzureFile != nil:
		return "secrets (via azureFile volumes)", nil
	case s.Projected != nil:
		for _, p := range s.Projected.Sources {
			if what, err := projection(v.Name, &p); what != "" || err != nil {
				return what, err
			}
		}
		return "", nil
	case s == corev1.VolumeSource{}:
		return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
	}
	return "", nil
}

func projection(volume string, p *corev1.VolumeProjection) (string, error) {
	switch {
	case p.ConfigMap != nil:
		return "configmaps (via projected volumes)", nil
	case p.Secret != nil:
		return "secrets (via projected volumes)", nil
	case p.ServiceAccountToken != nil:
		return "serviceaccounts (via projected volumes)", nil
	case p.ClusterTrustBundle != nil:
		return "clustertrustbundles", nil
	case p.PodCertificate != nil:
		return "podcertificates", nil
	case p.DownwardAPI != nil:
		return "", nil
	}
	return "", fmt.Errorf("unknown source for projected volume %q", volume)
}

// Claims are the volume claims that a pod uses, those made for it included.
func Claims(p *corev1.Pod) (names []string) {
	for i := range p.Spec.Volumes {
		switch v := &p.Spec.Volumes[i]; {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, p.Name+"-"+v.Name)
		}
	}
	return names
}
