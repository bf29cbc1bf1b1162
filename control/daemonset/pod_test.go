package daemonset

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestNewPod(t *testing.T) {
	ds := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: "ns", Name: "d", UID: "u", Annotations: map[string]string{appsv1.DeprecatedTemplateGeneration: "4"},
	}}
	ds.Spec.Template.Labels = map[string]string{"app": "d"}
	ds.Spec.Template.Spec.Tolerations = []corev1.Toleration{
		{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute,
			TolerationSeconds: new(int64(5))},
		{Key: "mine", Operator: corev1.TolerationOpExists},
	}
	preferred := []corev1.PreferredSchedulingTerm{{Weight: 1}}
	ds.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "disk", Operator: corev1.NodeSelectorOpExists}},
		}}},
		PreferredDuringSchedulingIgnoredDuringExecution: preferred,
	}}
	before := ds.DeepCopy()
	pod := newPod(ds, "hash", "n1")
	if !reflect.DeepEqual(before, ds) {
		t.Error("the set was changed")
	}
	if pod.GenerateName != "d-" || pod.Namespace != "ns" || !metav1.IsControlledBy(pod, ds) {
		t.Errorf("%+v", pod.ObjectMeta)
	}
	if want := map[string]string{"app": "d", "controller-revision-hash": "hash",
		"pod-template-generation": "4"}; !reflect.DeepEqual(pod.Labels, want) {
		t.Errorf("labels %v", pod.Labels)
	}
	var got []string
	for _, tol := range pod.Spec.Tolerations {
		if tol.TolerationSeconds != nil {
			t.Errorf("%s is tolerated for some time only", tol.Key)
		}
		got = append(got, tol.Key+":"+string(tol.Effect))
	}
	want := []string{
		"node.kubernetes.io/not-ready:NoExecute", "mine:", "node.kubernetes.io/unreachable:NoExecute",
		"node.kubernetes.io/disk-pressure:NoSchedule",
		"node.kubernetes.io/memory-pressure:NoSchedule", "node.kubernetes.io/pid-pressure:NoSchedule",
		"node.kubernetes.io/unschedulable:NoSchedule",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("tolerations %v", got)
	}
	a := pod.Spec.Affinity.NodeAffinity
	if !reflect.DeepEqual(a.PreferredDuringSchedulingIgnoredDuringExecution, preferred) ||
		len(a.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms) != 1 {
		t.Errorf("affinity %+v", a)
	}
	if targetNode(pod) != "n1" || pod.Spec.NodeName != "" {
		t.Errorf("its target is %q, and it is bound to %q", targetNode(pod), pod.Spec.NodeName)
	}
	pod.Spec.NodeName = "n2"
	if targetNode(pod) != "n2" {
		t.Errorf("it is bound to n2, not to %q", targetNode(pod))
	}
	for what, bad := range map[string]*corev1.Pod{
		"no affinity": {},
		"two nodes": {Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn,
					Values: []string{"a", "b"}}},
			}}},
		}}}},
	} {
		if got := targetNode(bad); got != "" {
			t.Errorf("%s: the target is %q", what, got)
		}
	}
}

func TestRelevantNodeChange(t *testing.T) {
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}}}
	heartbeat := old.DeepCopy()
	heartbeat.Status.Phase = corev1.NodeRunning
	if isRelevantNodeChange(old, heartbeat) {
		t.Error("a heartbeat wakes the controller")
	}
	label, taint := old.DeepCopy(), old.DeepCopy()
	label.Labels["a"] = "c"
	taint.Spec.Taints = []corev1.Taint{{Key: "k"}}
	if !isRelevantNodeChange(old, label) || !isRelevantNodeChange(old, taint) || !isRelevantNodeChange(nil, old) ||
		!isRelevantNodeChange(old, nil) {
		t.Error("a relevant change does not wake the controller")
	}
}
