package statefulset

import (
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"proa.dev/control/workload"
)

// ordinal is the number in the name of a set's Pod; -1 for a name that the set does not give.
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

// start is the first ordinal of a set.
func start(set *appsv1.StatefulSet) int {
	if set.Spec.Ordinals == nil {
		return 0
	}
	return int(set.Spec.Ordinals.Start)
}

// replicas is how many Pods a set should have.
func replicas(set *appsv1.StatefulSet) int {
	if set.Spec.Replicas == nil {
		return 1
	}
	return int(*set.Spec.Replicas)
}

// wanted says that a set should have a Pod with an ordinal.
func wanted(set *appsv1.StatefulSet, ordinal int) bool {
	return ordinal >= start(set) && ordinal < start(set)+replicas(set)
}

// partition is how many Pods an update leaves alone, counted from the first.
func partition(set *appsv1.StatefulSet) int {
	if r := set.Spec.UpdateStrategy.RollingUpdate; r != nil && r.Partition != nil {
		return int(*r.Partition)
	}
	return 0
}

// newPod makes the Pod of an ordinal, of the template that it should have by now.
func (s *state) newPod(ordinal int) *corev1.Pod {
	from := s.update
	if index := ordinal - start(s.set); s.keepsCurrent(index) {
		from = s.current
	}
	pod := workload.Pod(&from.set.Spec.Template, s.set, gvk)
	pod.Name = podName(s.set, ordinal)
	identify(pod, ordinal)
	pod.Labels[appsv1.StatefulSetRevisionLabel] = from.name
	pod.Spec.Hostname = pod.Name
	pod.Spec.Subdomain = s.set.Spec.ServiceName
	mountClaims(s.set, pod, ordinal)
	return pod
}

// keepsCurrent says that a Pod that is missing comes back as it was before the update. Without a partition to tell, that
// is so for as many as still are as before.
func (s *state) keepsCurrent(index int) bool {
	strategy := &s.set.Spec.UpdateStrategy
	if strategy.RollingUpdate != nil {
		return index < partition(s.set)
	}
	return strategy.Type == appsv1.RollingUpdateStatefulSetStrategyType && index < int(s.set.Status.CurrentReplicas)
}

// identify gives a Pod the labels that say which one of its set it is.
func identify(pod *corev1.Pod, ordinal int) {
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[appsv1.StatefulSetPodNameLabel] = pod.Name
	pod.Labels[appsv1.PodIndexLabel] = strconv.Itoa(ordinal)
}

func identified(pod *corev1.Pod) bool {
	return pod.Labels[appsv1.StatefulSetPodNameLabel] == pod.Name
}

func podRevision(pod *corev1.Pod) string { return pod.Labels[appsv1.StatefulSetRevisionLabel] }

// mountClaims gives a Pod a volume for each of its claims. They take the place of volumes of the same name.
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

// mounted says that a Pod has a volume for each of its claims.
func mounted(set *appsv1.StatefulSet, pod *corev1.Pod, ordinal int) bool {
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
