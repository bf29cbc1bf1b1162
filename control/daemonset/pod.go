package daemonset

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/control/workload"
)

// hashLabel says which revision a Pod or a ControllerRevision is of.
const hashLabel = appsv1.DefaultDaemonSetUniqueLabelKey

// generationLabel says the same in the words of old: the number of a template.
const generationLabel = "pod-template-generation"

// newPod makes the Pod of a node. The scheduler binds it, and can bind it to no other node.
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
	// What the template asks of a node, this node has.
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}},
	}}
	return pod
}

// generation is the number of a set's template; empty if it has none.
func generation(ds *appsv1.DaemonSet) string {
	n, err := strconv.ParseInt(ds.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// updated says that a Pod is of the template that the set has now.
func (s *state) updated(pod *corev1.Pod) bool {
	n := generation(s.ds)
	return (s.hash != "" && pod.Labels[hashLabel] == s.hash) || (n != "" && pod.Labels[generationLabel] == n)
}

// target is the node that a Pod is on, or is for; empty if it is for none.
func target(pod *corev1.Pod) string {
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

// oldestFirst orders the Pods of a node: those that are bound first, then by age and name.
func oldestFirst(pods []*corev1.Pod) {
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
