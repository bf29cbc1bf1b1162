// Package podrefs finds the references of a pod to other objects of the API. All code that must not miss a reference uses it, so that a
// new kind of reference is added in one place.
package podrefs

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// containers returns all containers of a pod.
func containers(s *corev1.PodSpec) []corev1.Container {
	all := slices.Concat(s.InitContainers, s.Containers)
	for i := range s.EphemeralContainers {
		all = append(all, corev1.Container(s.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return all
}

// UsesSecrets reports whether a pod refers to a Secret.
func UsesSecrets(s *corev1.PodSpec) bool {
	return usesSecret(s, func(name string) bool { return name != "" })
}

// UsesSecret reports whether a pod refers to the Secret of that name.
func UsesSecret(s *corev1.PodSpec, name string) bool {
	return usesSecret(s, func(n string) bool { return n == name })
}

// usesSecret reports whether the name of a Secret to which a pod refers matches.
func usesSecret(s *corev1.PodSpec, matches func(name string) bool) bool {
	return slices.ContainsFunc(s.ImagePullSecrets, func(r corev1.LocalObjectReference) bool { return matches(r.Name) }) ||
		slices.ContainsFunc(containers(s), func(c corev1.Container) bool { return containerUsesSecret(&c, matches) }) ||
		slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool { return volumeUsesSecret(&v.VolumeSource, matches) })
}

func containerUsesSecret(c *corev1.Container, matches func(name string) bool) bool {
	return slices.ContainsFunc(c.EnvFrom, func(f corev1.EnvFromSource) bool { return f.SecretRef != nil && matches(f.SecretRef.Name) }) ||
		slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && matches(e.ValueFrom.SecretKeyRef.Name)
		})
}

func volumeUsesSecret(s *corev1.VolumeSource, matches func(name string) bool) bool {
	local := func(r *corev1.LocalObjectReference) bool { return r != nil && matches(r.Name) }
	switch {
	case s.AzureFile != nil:
		return matches(s.AzureFile.SecretName)
	case s.CephFS != nil:
		return local(s.CephFS.SecretRef)
	case s.Cinder != nil:
		return local(s.Cinder.SecretRef)
	case s.FlexVolume != nil:
		return local(s.FlexVolume.SecretRef)
	case s.Projected != nil:
		return slices.ContainsFunc(s.Projected.Sources,
			func(p corev1.VolumeProjection) bool { return p.Secret != nil && matches(p.Secret.Name) })
	case s.RBD != nil:
		return local(s.RBD.SecretRef)
	case s.Secret != nil:
		return matches(s.Secret.SecretName)
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

// UsesConfigMaps reports whether a pod refers to a ConfigMap.
func UsesConfigMaps(s *corev1.PodSpec) bool {
	uses := func(c corev1.Container) bool {
		return slices.ContainsFunc(c.EnvFrom,
			func(f corev1.EnvFromSource) bool { return f.ConfigMapRef != nil && f.ConfigMapRef.Name != "" }) ||
			slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
				return e.ValueFrom != nil && e.ValueFrom.ConfigMapKeyRef != nil && e.ValueFrom.ConfigMapKeyRef.Name != ""
			})
	}
	return slices.ContainsFunc(containers(s), uses) || slices.ContainsFunc(s.Volumes, func(v corev1.Volume) bool {
		return v.ConfigMap != nil && v.ConfigMap.Name != "" || v.Projected != nil &&
			slices.ContainsFunc(v.Projected.Sources,
				func(p corev1.VolumeProjection) bool { return p.ConfigMap != nil && p.ConfigMap.Name != "" })
	})
}

// FirstReference returns the first resource of the API that a pod refers to, as errors show it; empty for none. A volume of an
// unknown kind is an error, because what it refers to is unknown.
func FirstReference(s *corev1.PodSpec) (string, error) {
	switch {
	case s.ServiceAccountName != "":
		return "serviceaccounts", nil
	case UsesSecrets(s):
		return "secrets", nil
	case UsesConfigMaps(s):
		return "configmaps", nil
	case len(s.ResourceClaims) > 0:
		return "resourceclaims", nil
	}
	for i := range s.Volumes {
		if what, err := volumeReference(&s.Volumes[i]); what != "" || err != nil {
			return what, err
		}
	}
	return "", nil
}

func volumeReference(v *corev1.Volume) (string, error) {
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
			if what, err := projectionReference(v.Name, &p); what != "" || err != nil {
				return what, err
			}
		}
		return "", nil
	case s == corev1.VolumeSource{}:
		return "", fmt.Errorf("unknown volume type for volume  %q", v.Name)
	}
	return "", nil
}

func projectionReference(volume string, p *corev1.VolumeProjection) (string, error) {
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

// VolumeClaims returns the names of the PersistentVolumeClaims that a pod uses, those of ephemeral volumes included.
func VolumeClaims(p *corev1.Pod) (names []string) {
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
