package schedule

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/schedule/framework"
	"proa.dev/schedule/plugins/basic"
)

func TestTaintRejectsPod(t *testing.T) {
	s := framework.NewState(nil)
	for _, name := range []string{"a", "b"} {
		s.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{
			Taints: []corev1.Taint{{Key: "k", Value: name, Effect: corev1.TaintEffectNoSchedule}},
		}})
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"}}
	profile := &framework.Profile{Plugins: []framework.Plugin{basic.TaintToleration()}}
	d := Decide(s.Snapshot(), framework.NewPodInfo(pod), profile, framework.Seed{})
	if want := "0/2 nodes are available: 2 node(s) had untolerated taint(s)."; d.Node != "" || d.Message() != want {
		t.Errorf("got node %q, message %q; want none and %q", d.Node, d.Message(), want)
	}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "k", Value: "b"}}
	if d := Decide(s.Snapshot(), framework.NewPodInfo(pod), profile, framework.Seed{}); d.Node != "b" {
		t.Errorf("got node %q, want b", d.Node)
	}
}
