package schedule

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shape is a text that two pods have in common only if plugins cannot tell them apart. It is "" for pods that stand for
// themselves: what they claim, or the group they are in, is in a state of its own.
//
// It is the spec without what differs between pods of one template and does not matter here: the names of the token volume,
// host names, and what containers run.
func Shape(pod *corev1.Pod) string {
	if len(pod.Spec.ResourceClaims) > 0 || pod.Spec.SchedulingGroup != nil {
		return ""
	}
	if mountsSpecially(pod.Spec.InitContainers) || mountsSpecially(pod.Spec.Containers) {
		return ""
	}
	spec := pod.Spec
	spec.Volumes = nil
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		switch {
		case v.PersistentVolumeClaim != nil, v.Ephemeral != nil, v.GCEPersistentDisk != nil, v.AWSElasticBlockStore != nil,
			v.ISCSI != nil, v.RBD != nil, v.AzureDisk != nil, v.Cinder != nil, v.CSI != nil, v.VsphereVolume != nil, v.PortworxVolume != nil:
			return ""
		case v.Image != nil:
			spec.Volumes = append(spec.Volumes, corev1.Volume{VolumeSource: v.VolumeSource})
		}
	}
	spec.Hostname, spec.Subdomain = "", ""
	spec.InitContainers = bare(spec.InitContainers)
	spec.Containers = bare(spec.Containers)
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

// mountsSpecially says that a mount asks for something that not every node can do.
func mountsSpecially(in []corev1.Container) bool {
	for i := range in {
		for j := range in[i].VolumeMounts {
			if len(in[i].VolumeMounts[j].BindMountOptions) > 0 {
				return true
			}
		}
	}
	return false
}

// bare are containers without what they run.
func bare(in []corev1.Container) []corev1.Container {
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
