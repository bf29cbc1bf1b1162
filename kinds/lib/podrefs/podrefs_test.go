package podrefs

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEverySecret refers to a secret in each of the places where a pod may.
func TestEverySecret(t *testing.T) {
	local := &corev1.LocalObjectReference{Name: "s"}
	volume := func(s corev1.VolumeSource) corev1.PodSpec {
		return corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: s}}}
	}
	env := []corev1.EnvVar{{Name: "e",
		ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: *local}}}}
	from := []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *local}}}
	for title, c := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"nothing": {corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "e", Value: "v"}}}}},
			false},
		"an empty volume": {volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), false},
		"an empty name":   {volume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: &corev1.LocalObjectReference{}}}), false},
		"pull":            {corev1.PodSpec{ImagePullSecrets: []corev1.LocalObjectReference{*local}}, true},
		"env":             {corev1.PodSpec{Containers: []corev1.Container{{Env: env}}}, true},
		"env of init":     {corev1.PodSpec{InitContainers: []corev1.Container{{EnvFrom: from}}}, true},
		"env of ephemeral": {
			corev1.PodSpec{
				EphemeralContainers: []corev1.EphemeralContainer{
					{EphemeralContainerCommon: corev1.EphemeralContainerCommon{EnvFrom: from}}}}, true},
		"azure":      {volume(corev1.VolumeSource{AzureFile: &corev1.AzureFileVolumeSource{SecretName: "s"}}), true},
		"ceph":       {volume(corev1.VolumeSource{CephFS: &corev1.CephFSVolumeSource{SecretRef: local}}), true},
		"cinder":     {volume(corev1.VolumeSource{Cinder: &corev1.CinderVolumeSource{SecretRef: local}}), true},
		"flex":       {volume(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{SecretRef: local}}), true},
		"rbd":        {volume(corev1.VolumeSource{RBD: &corev1.RBDVolumeSource{SecretRef: local}}), true},
		"secret":     {volume(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s"}}), true},
		"scale io":   {volume(corev1.VolumeSource{ScaleIO: &corev1.ScaleIOVolumeSource{SecretRef: local}}), true},
		"iscsi":      {volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{SecretRef: local}}), true},
		"storage os": {volume(corev1.VolumeSource{StorageOS: &corev1.StorageOSVolumeSource{SecretRef: local}}), true},
		"csi":        {volume(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: local}}), true},
		"a projection": {
			volume(corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{
					Sources: []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{LocalObjectReference: *local}}}}}), true},
		"another projected": {
			volume(corev1.VolumeSource{
				Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{}}}}}),
			false},
	} {
		t.Run(title, func(t *testing.T) {
			if got := UsesSecrets(&c.spec); got != c.want {
				t.Errorf("got %v", got)
			}
			if got := UsesSecret(&c.spec, "s"); got != c.want {
				t.Errorf("uses s: %v", got)
			}
			if UsesSecret(&c.spec, "other") {
				t.Error("uses another secret")
			}
		})
	}
}
