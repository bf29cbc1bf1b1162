package podspec

import (
	"iter"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/kinds/core/containerspec"
)

// DropDisabledFields removes the fields of disabled features, unless old uses them already: the feature was enabled
// then, and the object must keep them.
func DropDisabledFields(s *corev1.PodSpec, annotations map[string]string, old *corev1.PodSpec) {
	if old == nil {
		old = &corev1.PodSpec{}
	}
	for _, feature := range []func(*corev1.PodSpec) (inUse bool, drop func()){
		volumeUsers, schedulingGroup, probeModes, evictionResponders, emptyDirModes, bindOptions, stopSignals, probeProtocols,
	} {
		if inUse, _ := feature(old); inUse {
			continue
		}
		if inUse, drop := feature(s); inUse {
			drop()
		}
	}
	DropInitContainerAnnotations(annotations)
}

// DropInitContainerAnnotations removes the annotations that held init containers before they were a field.
func DropInitContainerAnnotations(annotations map[string]string) {
	if len(annotations) == 0 {
		return
	}
	for _, stage := range []string{"alpha", "beta"} {
		delete(annotations, "pod."+stage+".kubernetes.io/init-containers")
		delete(annotations, "pod."+stage+".kubernetes.io/init-container-statuses")
	}
}

func schedulingGroup(s *corev1.PodSpec) (bool, func()) {
	return s.SchedulingGroup != nil, func() { s.SchedulingGroup = nil }
}

func evictionResponders(s *corev1.PodSpec) (bool, func()) {
	return len(s.EvictionResponders) > 0, func() { s.EvictionResponders = nil }
}

// optionalFields returns whether a feature is in use, which is when one of its optional fields is set, and a function that
// clears all of them.
func optionalFields[T any](list []**T) (bool, func()) {
	return slices.ContainsFunc(list, func(p **T) bool { return *p != nil }), func() {
		for _, p := range list {
			*p = nil
		}
	}
}

func emptyDirModes(s *corev1.PodSpec) (bool, func()) {
	var modes []**int32
	for i := range s.Volumes {
		if e := s.Volumes[i].EmptyDir; e != nil {
			modes = append(modes, &e.Mode)
		}
	}
	return optionalFields(modes)
}

func bindOptions(s *corev1.PodSpec) (bool, func()) {
	inUse := false
	for _, c := range containerspec.All(s) {
		inUse = inUse || slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return len(m.BindMountOptions) > 0 })
	}
	return inUse, func() {
		for _, c := range containerspec.All(s) {
			for i := range c.VolumeMounts {
				c.VolumeMounts[i].BindMountOptions = nil
			}
		}
	}
}

func stopSignals(s *corev1.PodSpec) (bool, func()) {
	inUse := false
	for _, c := range containerspec.All(s) {
		inUse = inUse || c.Lifecycle != nil && c.Lifecycle.StopSignal != nil
	}
	return inUse, func() {
		for _, c := range containerspec.All(s) {
			if c.Lifecycle == nil || c.Lifecycle.StopSignal == nil {
				continue
			}
			c.Lifecycle.StopSignal = nil
			if *c.Lifecycle == (corev1.Lifecycle{}) {
				c.Lifecycle = nil
			}
		}
	}
}

// probesOf yields every probe of a pod.
func probesOf(s *corev1.PodSpec) iter.Seq[*corev1.Probe] {
	return func(yield func(*corev1.Probe) bool) {
		for _, c := range containerspec.All(s) {
			for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if p != nil && !yield(p) {
					return
				}
			}
		}
	}
}

func probeModes(s *corev1.PodSpec) (bool, func()) {
	var modes []**corev1.GRPCProbeMode
	for p := range probesOf(s) {
		if p.GRPC != nil {
			modes = append(modes, &p.GRPC.Mode)
		}
	}
	return optionalFields(modes)
}

func probeProtocols(s *corev1.PodSpec) (bool, func()) {
	var protocols []**corev1.HTTPProtocol
	add := func(a *corev1.HTTPGetAction) {
		if a != nil {
			protocols = append(protocols, &a.Protocol)
		}
	}
	for p := range probesOf(s) {
		add(p.HTTPGet)
	}
	for _, c := range containerspec.All(s) {
		if c.Lifecycle == nil {
			continue
		}
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				add(h.HTTPGet)
			}
		}
	}
	return optionalFields(protocols)
}

// volumeUsers is the feature of setting the owners of files in volumes.
func volumeUsers(s *corev1.PodSpec) (bool, func()) {
	var users []**int64
	items := func(list []corev1.KeyToPath) {
		for i := range list {
			users = append(users, &list[i].User)
		}
	}
	files := func(list []corev1.DownwardAPIVolumeFile) {
		for i := range list {
			users = append(users, &list[i].User)
		}
	}
	for i := range s.Volumes {
		switch v := &s.Volumes[i]; {
		case v.Secret != nil:
			users = append(users, &v.Secret.DefaultUser)
			items(v.Secret.Items)
		case v.ConfigMap != nil:
			users = append(users, &v.ConfigMap.DefaultUser)
			items(v.ConfigMap.Items)
		case v.DownwardAPI != nil:
			users = append(users, &v.DownwardAPI.DefaultUser)
			files(v.DownwardAPI.Items)
		case v.Projected != nil:
			users = append(users, &v.Projected.DefaultUser)
			for j := range v.Projected.Sources {
				switch p := &v.Projected.Sources[j]; {
				case p.Secret != nil:
					items(p.Secret.Items)
				case p.DownwardAPI != nil:
					files(p.DownwardAPI.Items)
				case p.ConfigMap != nil:
					items(p.ConfigMap.Items)
				case p.ServiceAccountToken != nil:
					users = append(users, &p.ServiceAccountToken.User)
				case p.ClusterTrustBundle != nil:
					users = append(users, &p.ClusterTrustBundle.User)
				case p.PodCertificate != nil:
					users = append(users, &p.PodCertificate.User)
				}
			}
		}
	}
	return optionalFields(users)
}

// DropDisabledStatusFields removes the status fields of disabled features, unless old uses them already.
func DropDisabledStatusFields(s, old *corev1.PodStatus) {
	if old == nil {
		old = &corev1.PodStatus{}
	}
	digests := func(s *corev1.PodStatus) (bool, func()) {
		var list []**corev1.VolumeStatus
		for _, c := range ContainerStatuses(s) {
			for i := range c.VolumeMounts {
				list = append(list, &c.VolumeMounts[i].VolumeStatus)
			}
		}
		return optionalFields(list)
	}
	if inUse, _ := digests(old); !inUse {
		_, drop := digests(s)
		drop()
	}
	if len(old.NodeAllocatableResourceClaimStatuses) == 0 {
		s.NodeAllocatableResourceClaimStatuses = nil
	}
	if len(old.VolumeHealth) == 0 {
		s.VolumeHealth = nil
	}
}

// ContainerStatuses yields the status of every container with the name of its list.
func ContainerStatuses(s *corev1.PodStatus) iter.Seq2[string, *corev1.ContainerStatus] {
	return func(yield func(string, *corev1.ContainerStatus) bool) {
		lists := []struct {
			name string
			list []corev1.ContainerStatus
		}{
			{"initContainerStatuses", s.InitContainerStatuses},
			{"containerStatuses", s.ContainerStatuses},
			{"ephemeralContainerStatuses", s.EphemeralContainerStatuses},
		}
		for _, l := range lists {
			for i := range l.list {
				if !yield(l.name, &l.list[i]) {
					return
				}
			}
		}
	}
}
