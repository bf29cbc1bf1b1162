package daemonset

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control/lib/workload"
)

// hashLabel is the label with the hash of the revision that a Pod or a ControllerRevision belongs to.
const hashLabel = appsv1.DefaultDaemonSetUniqueLabelKey

// generationLabel is the deprecated label with the generation of the template.
const generationLabel = "pod-template-generation"

// newPod returns the Pod of a node, with an affinity that lets the scheduler bind it to no other node.
func newPod(ds *appsv1.DaemonSet, hash, node string) *corev1.Pod {
	pod := workload.Pod(&ds.Spec.Template, ds, gvk)
	if pod.Labels == nil {
		pod.Labels = map[string]string{}
	}
	pod.Labels[hashLabel] = hash
	if n := generation(ds); n != "" {
		pod.Labels[generationLabel] = n
	}
	pod.Spec.Tolerations = tolerations(&pod.Spec)
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	// The node matches the affinity of the template, which is replaced here.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{
			{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn,
				Values: []string{node}}}},
		}}
	return pod
}

// generation returns the deprecated template generation of a set; empty if it has none.
func generation(ds *appsv1.DaemonSet) string {
	n, err := strconv.ParseInt(ds.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// isUpdated reports whether a Pod was created from the current template of the set.
func (s *state) isUpdated(pod *corev1.Pod) bool {
	n := generation(s.ds)
	return (s.hash != "" && pod.Labels[hashLabel] == s.hash) || (n != "" && pod.Labels[generationLabel] == n)
}

// targetNode returns the node that a Pod is bound to, or has an affinity for; empty if there is none.
func targetNode(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	a := pod.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range term.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn {
				if len(f.Values) != 1 {
					return ""
				}
				return f.Values[0]
			}
		}
	}
	return ""
}

// sortOldestFirst orders the Pods of a node: those that are bound first, then by age and name.
func sortOldestFirst(pods []*corev1.Pod) {
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		if bound := a.Spec.NodeName != ""; bound != (b.Spec.NodeName != "") {
			if bound {
				return -1
			}
			return 1
		}
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
}
