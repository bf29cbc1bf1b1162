package authz

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestVolumesGiveAccessToTheirSecrets checks that every kind of volume that needs a secret gives access to that secret and no
// other, in the right namespace.
func TestVolumesGiveAccessToTheirSecrets(t *testing.T) {
	local := &corev1.LocalObjectReference{Name: "s"}
	for name, v := range map[string]corev1.VolumeSource{
		"secret":     {Secret: &corev1.SecretVolumeSource{SecretName: "s"}},
		"csi":        {CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: local}},
		"azureFile":  {AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s"}},
		"cephfs":     {CephFS: &corev1.CephFSVolumeSource{SecretRef: local}},
		"cinder":     {Cinder: &corev1.CinderVolumeSource{SecretRef: local}},
		"flexVolume": {FlexVolume: &corev1.FlexVolumeSource{SecretRef: local}},
		"rbd":        {RBD: &corev1.RBDVolumeSource{SecretRef: local}},
		"scaleIO":    {ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: local}},
		"iscsi":      {ISCSI: &corev1.ISCSIVolumeSource{SecretRef: local}},
		"storageos":  {StorageOS: &corev1.StorageOSVolumeSource{SecretRef: local}},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: v}}}}
		if !usesSecret(pod, "s") || usesSecret(pod, "x") {
			t.Errorf("%s: s %v, x %v", name, usesSecret(pod, "s"), usesSecret(pod, "x"))
		}
	}
	if usesSecret(
		&corev1.Pod{
			Spec: corev1.PodSpec{Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}}}}},
		"s") {
		t.Error("hostPath opens a secret")
	}
}

func TestPersistentVolumesGiveAccessToTheirSecrets(t *testing.T) {
	ref := func(namespace string) *corev1.SecretReference {
		return &corev1.SecretReference{Namespace: namespace, Name: "s"}
	}
	// For each kind: the source with a secret in the namespace "vault", and with one that leaves it out.
	for name, build := range map[string]func(namespace string) corev1.PersistentVolumeSource{
		"azureFile": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{AzureFile: &corev1.AzureFilePersistentVolumeSource{SecretName: "s", SecretNamespace: &n}}
		},
		"cephfs": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{CephFS: &corev1.CephFSPersistentVolumeSource{SecretRef: ref(n)}}
		},
		"flexVolume": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{FlexVolume: &corev1.FlexPersistentVolumeSource{SecretRef: ref(n)}}
		},
		"rbd": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{RBD: &corev1.RBDPersistentVolumeSource{SecretRef: ref(n)}}
		},
		"scaleIO": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{ScaleIO: &corev1.ScaleIOPersistentVolumeSource{SecretRef: ref(n)}}
		},
		"iscsi": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{ISCSI: &corev1.ISCSIPersistentVolumeSource{SecretRef: ref(n)}}
		},
		"cinder": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{Cinder: &corev1.CinderPersistentVolumeSource{SecretRef: ref(n)}}
		},
		"storageos": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{
				StorageOS: &corev1.StorageOSPersistentVolumeSource{SecretRef: &corev1.ObjectReference{Namespace: n, Name: "s"}}}
		},
		"csi": func(n string) corev1.PersistentVolumeSource {
			return corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{NodeExpandSecretRef: ref(n)}}
		},
	} {
		opens := func(source corev1.PersistentVolumeSource, namespace, secret string) bool {
			return persistentVolumeUsesSecret(&corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{
				PersistentVolumeSource: source, ClaimRef: &corev1.ObjectReference{Namespace: "web", Name: "c"},
			}}, namespace, secret)
		}
		if s := build("vault"); !opens(s, "vault", "s") || opens(s, "web", "s") || opens(s, "vault", "x") {
			t.Errorf("%s does not open exactly vault/s", name)
		}
		exact := name == "cinder" || name == "storageos" || name == "csi"
		if s := build(""); opens(s, "web", "s") == exact || opens(s, "vault", "s") {
			t.Errorf("%s without a namespace: web/s %v, vault/s %v", name, opens(s, "web", "s"), opens(s, "vault", "s"))
		}
	}
}
