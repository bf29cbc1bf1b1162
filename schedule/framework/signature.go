package framework

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Signature returns a string that two Pods have in common only if plugins cannot distinguish them. It is empty for Pods
// that cannot share results: those with claims or in a PodGroup, which have a state of their own.
//
// It consists of namespace, labels, owner and the spec without the parts that differ between Pods of one template or do
// not affect scheduling: the name of the token volume, host names, and what containers run.
func Signature(pod *corev1.Pod) string {
	if len(pod.Spec.ResourceClaims) > 0 || pod.Spec.SchedulingGroup != nil {
		return ""
	}
	if hasBindMountOptions(pod.Spec.InitContainers) || hasBindMountOptions(pod.Spec.Containers) {
		return ""
	}
	spec := pod.Spec
	spec.Volumes = nil
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil, v.Ephemeral != nil, v.GCEPersistentDisk != nil, v.AWSElasticBlockStore != nil,
			v.ISCSI != nil, v.RBD != nil, v.AzureDisk != nil, v.Cinder != nil, v.CSI != nil, v.VsphereVolume != nil,
			v.PortworxVolume != nil:
			return ""
		case v.Image != nil:
			spec.Volumes = append(spec.Volumes, corev1.Volume{VolumeSource: v.VolumeSource})
		}
	}
	spec.Hostname, spec.Subdomain = "", ""
	spec.InitContainers = withoutCommands(spec.InitContainers)
	spec.Containers = withoutCommands(spec.Containers)
	spec.EphemeralContainers = nil

	buf := make([]byte, 0, 256)
	text := func(s string) { buf = append(append(buf, s...), 0) }
	text(pod.Namespace)
	for _, k := range slices.Sorted(maps.Keys(pod.Labels)) {
		text(k)
		text(pod.Labels[k])
	}
	buf = append(buf, 1)
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		text(string(owner.UID))
	}
	buf = append(buf, 1)
	wire, err := spec.Marshal()
	if err != nil {
		return ""
	}
	return string(append(buf, wire...))
}

// hasBindMountOptions reports whether a volume mount has bind mount options, which not every node supports.
func hasBindMountOptions(in []corev1.Container) bool {
	for i := range in {
		for j := range in[i].VolumeMounts {
			if len(in[i].VolumeMounts[j].BindMountOptions) > 0 {
				return true
			}
		}
	}
	return false
}

// withoutCommands returns copies of containers without commands, mounts, environment and probes.
func withoutCommands(in []corev1.Container) []corev1.Container {
	if len(in) == 0 {
		return nil
	}
	out := slices.Clone(in)
	for i := range out {
		c := &out[i]
		c.VolumeMounts, c.VolumeDevices, c.Env, c.EnvFrom, c.Command, c.Args = nil, nil, nil, nil, nil, nil
		c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = nil, nil, nil, nil
	}
	return out
}
