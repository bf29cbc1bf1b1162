package statefulset

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control/lib/workload"
)

// ordinal returns the ordinal in the name of a set's Pod; -1 if the name is not one of the set's.
func ordinal(set *appsv1.StatefulSet, pod *corev1.Pod) int {
	digits, found := strings.CutPrefix(pod.Name, set.Name+"-")
	n, err := strconv.ParseInt(digits, 10, 32)
	if !found || err != nil || n < 0 || pod.Name != podName(set, int(n)) {
		return -1
	}
	return int(n)
}

func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

// start returns the first ordinal of a set.
func start(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

// replicas returns spec.replicas, which defaults to 1.
func replicas(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// isWanted reports whether a set should have a Pod with an ordinal.
func isWanted(set *appsv1.StatefulSet, ordinal int) bool {
	return ordinal >= start(set) && ordinal < start(set)+replicas(set)
}

// partition returns how many Pods, from the first one on, an update does not touch.
func partition(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// placeholder stands for a Pod that is to be created. A plan has many of them, and the Pod is as large as its template.
func (s *state) placeholder(ordinal int) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.set.Namespace, Name: podName(s.set, ordinal)}}
}

// newPod returns the Pod of an ordinal, with the template of the current or the update revision.
func (s *state) newPod(ordinal int) *corev1.Pod {
	from := s.update
	if index := ordinal - start(s.set); s.keepsCurrent(index) {
		from = s.current
	}
	pod := workload.Pod(&from.set.Spec.Template, s.set, gvk)
	pod.Name = podName(s.set, ordinal)
	setIdentityLabels(pod, ordinal)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = from.name
	pod.Spec.Hostname = pod.Name
	pod.Spec.Subdomain = s.set.Spec.ServiceName
	mountClaims(s.set, pod, ordinal)
	return pod
}

// keepsCurrent reports whether a missing Pod is created with the template before the update: one below the partition or,
// without a partition, one of the first Pods, as many as the status counts as current.
func (s *state) keepsCurrent(index int) bool {
	strategy := &s.set.Spec.UpdateStrategy
	if strategy.RollingUpdate != nil {
		return index < partition(s.set)
	}
	return strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && index < int(s.set.Status.CurrentReplicas)
}

// setIdentityLabels sets the labels with the name and ordinal of a Pod.
func setIdentityLabels(pod *corev1.Pod, ordinal int) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
}

func hasIdentityLabels(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name
}

func podRevision(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

// mountClaims adds a volume for each claim of a Pod, in place of volumes of the same name.
func mountClaims(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) {
	if len(set.Spec.VolumeClaimTemplates) == 0 {
		return
	}
	var volumes []corev1.Volume
	taken := map[string]bool{}
	for i := range set.Spec.VolumeClaimTemplates {
		t := &set.Spec.VolumeClaimTemplates[i]
		taken[t.Name] = true
		volumes = append(volumes, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, t, ordinal)},
		}})
	}
	for _, v := range pod.Spec.Volumes {
		if !taken[v.Name] {
			volumes = append(volumes, v)
		}
	}
	pod.Spec.Volumes = volumes
}

// hasClaimVolumes reports whether a Pod has a volume for each of its claims.
func hasClaimVolumes(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) bool {
	claims := map[string]string{}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			claims[v.Name] = v.PersistentVolumeClaim.ClaimName
		}
	}
	for i := range set.Spec.VolumeClaimTemplates {
		if t := &set.Spec.VolumeClaimTemplates[i]; claims[t.Name] != claimName(set, t, ordinal) {
			return false
		}
	}
	return true
}
