package authz

import (
	corev1 "k8s.io/api/core/v1"
)

// isRelated reports whether the object belongs to the node: it names the node itself, or a pod on the node refers to
// it, or a volume of such a pod does.
func (n *Node) isRelated(node, resource, namespace, name string) bool {
	switch resource {
	case "pods", "volumeattachments", "resourceslices", "podcertificaterequests":
		return n.cluster.NodeOf(resource, namespace, name) == node
	case "persistentvolumes":
		// The volume names its claim, and the pods on the node name the claims that they use. The volume name in the
		// claim does not count: the owner of a claim can write any name into it.
		pv, ok := n.cluster.Volume(name)
		if !ok || pv.Spec.ClaimRef == nil {
			return false
		}
		return n.anyPod(node, pv.Spec.ClaimRef.Namespace, func(pod *corev1.Pod) bool {
			return usesClaim(pod, pv.Spec.ClaimRef.Name)
		})
	case "secrets":
		return n.anyPod(node, namespace, func(pod *corev1.Pod) bool { return usesSecret(pod, name) }) ||
			n.anyVolume(node, func(pv *corev1.PersistentVolume) bool {
				return persistentVolumeUsesSecret(pv, namespace, name)
			})
	case "configmaps":
		return n.anyPod(node, namespace, func(pod *corev1.Pod) bool { return usesConfigMap(pod, name) })
	case "persistentvolumeclaims":
		return n.anyPod(node, namespace, func(pod *corev1.Pod) bool { return usesClaim(pod, name) })
	case "resourceclaims":
		return n.anyPod(node, namespace, func(pod *corev1.Pod) bool { return usesResourceClaim(pod, name) })
	case "serviceaccounts":
		return n.anyPod(node, namespace, func(pod *corev1.Pod) bool { return pod.Spec.ServiceAccountName == name })
	}
	return false
}

// anyPod reports whether a pod of the namespace on the node matches.
func (n *Node) anyPod(node, namespace string, matches func(*corev1.Pod) bool) bool {
	for pod := range n.cluster.Pods(node) {
		if pod.Namespace == namespace && !isMirror(pod) && matches(pod) {
			return true
		}
	}
	return false
}

// anyVolume reports whether a volume matches that is bound to a claim of a pod on the node. A claim that merely names a
// volume does not count; the volume must name the claim.
func (n *Node) anyVolume(node string, matches func(*corev1.PersistentVolume) bool) bool {
	for pod := range n.cluster.Pods(node) {
		if isMirror(pod) {
			continue
		}
		for i := range pod.Spec.Volumes {
			name := claimOf(pod, &pod.Spec.Volumes[i])
			if name == "" {
				continue
			}
			claim, ok := n.cluster.Claim(pod.Namespace, name)
			if !ok || claim.Spec.VolumeName == "" {
				continue
			}
			pv, ok := n.cluster.Volume(claim.Spec.VolumeName)
			if !ok || pv.Spec.ClaimRef == nil {
				continue
			}
			if pv.Spec.ClaimRef.Namespace == pod.Namespace && pv.Spec.ClaimRef.Name == name && matches(pv) {
				return true
			}
		}
	}
	return false
}

// isMirror reports whether a pod is a mirror pod. The agent creates them itself, so they must not give it access to
// anything.
func isMirror(pod *corev1.Pod) bool {
	_, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	return mirror
}

// usesSecret reports whether the pod itself names a secret: to pull images, in an environment, or in a volume.
func usesSecret(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.ImagePullSecrets {
		if pod.Spec.ImagePullSecrets[i].Name == name {
			return true
		}
	}
	if anyContainer(pod, func(env []corev1.EnvVar, from []corev1.EnvFromSource) bool {
		for i := range from {
			if r := from[i].SecretRef; r != nil && r.Name == name {
				return true
			}
		}
		for i := range env {
			if v := env[i].ValueFrom; v != nil && v.SecretKeyRef != nil && v.SecretKeyRef.Name == name {
				return true
			}
		}
		return false
	}) {
		return true
	}
	for i := range pod.Spec.Volumes {
		if volumeUsesSecret(&pod.Spec.Volumes[i].VolumeSource, name) {
			return true
		}
	}
	return false
}

func volumeUsesSecret(v *corev1.VolumeSource, name string) bool {
	local := func(ref *corev1.LocalObjectReference) bool { return ref != nil && ref.Name == name }
	switch {
	case v.Secret != nil:
		return v.Secret.SecretName == name
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if s := v.Projected.Sources[i].Secret; s != nil && s.Name == name {
				return true
			}
		}
		return false
	case v.CSI != nil:
		return local(v.CSI.NodePublishSecretRef)
	case v.AzureFile != nil:
		return v.AzureFile.SecretName == name
	case v.CephFS != nil:
		return local(v.CephFS.SecretRef)
	case v.Cinder != nil:
		return local(v.Cinder.SecretRef)
	case v.FlexVolume != nil:
		return local(v.FlexVolume.SecretRef)
	case v.RBD != nil:
		return local(v.RBD.SecretRef)
	case v.ScaleIO != nil:
		return local(v.ScaleIO.SecretRef)
	case v.ISCSI != nil:
		return local(v.ISCSI.SecretRef)
	case v.StorageOS != nil:
		return local(v.StorageOS.SecretRef)
	}
	return false
}

func usesConfigMap(pod *corev1.Pod, name string) bool {
	if anyContainer(pod, func(env []corev1.EnvVar, from []corev1.EnvFromSource) bool {
		for i := range from {
			if r := from[i].ConfigMapRef; r != nil && r.Name == name {
				return true
			}
		}
		for i := range env {
			if v := env[i].ValueFrom; v != nil && v.ConfigMapKeyRef != nil && v.ConfigMapKeyRef.Name == name {
				return true
			}
		}
		return false
	}) {
		return true
	}
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i].VolumeSource
		if v.ConfigMap != nil && v.ConfigMap.Name == name {
			return true
		}
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			if s := v.Projected.Sources[j].ConfigMap; s != nil && s.Name == name {
				return true
			}
		}
	}
	return false
}

// anyContainer calls matches with the environments of all containers, until it returns true: init, main and ephemeral
// ones.
func anyContainer(pod *corev1.Pod, matches func([]corev1.EnvVar, []corev1.EnvFromSource) bool) bool {
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; matches(c.Env, c.EnvFrom) {
			return true
		}
	}
	for i := range pod.Spec.Containers {
		if c := &pod.Spec.Containers[i]; matches(c.Env, c.EnvFrom) {
			return true
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if c := &pod.Spec.EphemeralContainers[i]; matches(c.Env, c.EnvFrom) {
			return true
		}
	}
	return false
}

// claimOf returns the name of the claim of a volume, or "".
func claimOf(pod *corev1.Pod, v *corev1.Volume) string {
	switch {
	case v.PersistentVolumeClaim != nil:
		return v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		return pod.Name + "-" + v.Name
	}
	return ""
}

func usesClaim(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.Volumes {
		if name != "" && claimOf(pod, &pod.Spec.Volumes[i]) == name {
			return true
		}
	}
	return false
}

// usesResourceClaim also finds claims made from a template or for an extended resource, whose names are in the pod's
// status.
func usesResourceClaim(pod *corev1.Pod, name string) bool {
	for i := range pod.Spec.ResourceClaims {
		c := &pod.Spec.ResourceClaims[i]
		switch {
		case c.ResourceClaimName != nil:
			if *c.ResourceClaimName == name {
				return true
			}
		case c.ResourceClaimTemplateName != nil:
			for j := range pod.Status.ResourceClaimStatuses {
				s := &pod.Status.ResourceClaimStatuses[j]
				if s.Name == c.Name && s.ResourceClaimName != nil && *s.ResourceClaimName == name {
					return true
				}
			}
		}
	}
	extended := pod.Status.ExtendedResourceClaimStatus
	return extended != nil && extended.ResourceClaimName == name
}

// persistentVolumeUsesSecret considers the secrets that the agent needs, not those of the volume's controller. Older
// volumes leave out the secret's namespace and mean that of the claim.
func persistentVolumeUsesSecret(pv *corev1.PersistentVolume, namespace, name string) bool {
	exact := func(ref *corev1.SecretReference) bool {
		return ref != nil && ref.Name == name && ref.Namespace == namespace
	}
	orClaim := func(ref *corev1.SecretReference) bool {
		return exact(ref) || ref != nil && ref.Name == name && ref.Namespace == "" && pv.Spec.ClaimRef.Namespace == namespace
	}
	s := &pv.Spec.PersistentVolumeSource
	switch {
	case s.CSI != nil:
		return exact(s.CSI.NodePublishSecretRef) || exact(s.CSI.NodeStageSecretRef) || exact(s.CSI.NodeExpandSecretRef)
	case s.AzureFile != nil:
		ref := &corev1.SecretReference{Name: s.AzureFile.SecretName}
		if s.AzureFile.SecretNamespace != nil {
			ref.Namespace = *s.AzureFile.SecretNamespace
		}
		return orClaim(ref)
	case s.CephFS != nil:
		return orClaim(s.CephFS.SecretRef)
	case s.FlexVolume != nil:
		return orClaim(s.FlexVolume.SecretRef)
	case s.RBD != nil:
		return orClaim(s.RBD.SecretRef)
	case s.ScaleIO != nil:
		return orClaim(s.ScaleIO.SecretRef)
	case s.ISCSI != nil:
		return orClaim(s.ISCSI.SecretRef)
	case s.Cinder != nil:
		return exact(s.Cinder.SecretRef)
	case s.StorageOS != nil:
		ref := s.StorageOS.SecretRef
		return ref != nil && ref.Name == name && ref.Namespace == namespace
	}
	return false
}
