package networkpolicy

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/core/podkind"
)

// TestReducedPodsAreEnough checks that policies decide the same from the reduced Pods that a node may read as from
// whole Pods.
func TestReducedPodsAreEnough(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	ports := func(name string, number int32) []corev1.ContainerPort {
		return []corev1.ContainerPort{{ContainerPort: 1}, {Name: name, ContainerPort: number, Protocol: corev1.ProtocolUDP, HostPort: 7},
			{Name: name, ContainerPort: number + 1, Protocol: corev1.ProtocolUDP}}
	}
	for _, change := range []func(*corev1.Pod){
		func(*corev1.Pod) {},
		func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
		func(p *corev1.Pod) { p.Status.PodIPs = nil },
		func(p *corev1.Pod) {
			p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static", "other": "x"}
		},
		func(p *corev1.Pod) { p.Labels = nil; p.DeletionTimestamp = &metav1.Time{} },
		func(p *corev1.Pod) { p.UID = "other"; p.Spec.NodeName = "c" },
	} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u", Labels: map[string]string{"a": "b"},
				CreationTimestamp: metav1.Unix(1e9, 0)},
			Spec: corev1.PodSpec{
				NodeName: "b", Containers: []corev1.Container{{Name: "c", Env: []corev1.EnvVar{{Name: "A", Value: "x"}},
					Ports: ports("web", 80)}, {Name: "d"}, {Name: "e", Ports: ports("web", 90)}},
				InitContainers: []corev1.Container{{Name: "i", Ports: ports("once", 70)},
					{Name: "j", RestartPolicy: &always, Ports: ports("beside", 60)}},
			},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1",
				PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}}},
		}
		change(p)
		reducedPod := podkind.Pods().ForNodes.Show(p).(*corev1.Pod)
		whole, counts := readPod(p, "a")
		reduced, reducedCounts := readPod(reducedPod, "a")
		if counts != reducedCounts || !reflect.DeepEqual(whole, reduced) {
			t.Errorf("whole %+v %v\nreduced %+v %v", whole, counts, reduced, reducedCounts)
		}
		if !isUnchanged(p, reducedPod) || isSamePod(p, "static") != isSamePod(reducedPod, "static") {
			t.Error("a reduced Pod is not recognized as the same")
		}
	}
}
