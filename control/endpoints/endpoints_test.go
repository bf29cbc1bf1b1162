package endpoints

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestTooManyAddresses(t *testing.T) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	s.Spec.ClusterIP, s.Spec.IPFamilies = "10.96.0.1", []corev1.IPFamily{corev1.IPv4Protocol}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", TargetPort: intstr.FromInt32(80), Protocol: corev1.ProtocolTCP}}
	for _, c := range []struct{ ready, unready, wantReady, wantUnready int }{
		{1000, 0, 1000, 0}, {700, 300, 700, 300}, {900, 200, 900, 100}, {1200, 50, 1000, 0}, {0, 1001, 0, 1000},
	} {
		var pods []*corev1.Pod
		for i := range c.ready + c.unready {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint(i))}}
			p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
				LastTransitionTime: metav1.NewTime(time.Unix(int64(i), 0))}}
			if i < c.ready {
				p.Status.Conditions[0].Status = corev1.ConditionTrue
			}
			pods = append(pods, p)
		}
		got := decide(s, pods, nil)
		ready, unready := 0, 0
		for _, x := range got.Subsets {
			ready, unready = ready+len(x.Addresses), unready+len(x.NotReadyAddresses)
		}
		want := ""
		if c.ready+c.unready > capacity {
			want = "truncated"
		}
		if ready != c.wantReady || unready != c.wantUnready || got.Annotations[corev1.EndpointsOverCapacity] != want {
			t.Errorf("%+v: %d ready, %d not, %v", c, ready, unready, got.Annotations)
		}
		if again := decide(s, pods, got); again != nil {
			t.Errorf("%+v: the same again is a change: %v", c, again.Annotations)
		}
	}
}

// TestPodsTimesPorts has a Service of many ports and pods: only some of the pods become addresses, ready ones first.
func TestPodsTimesPorts(t *testing.T) {
	t.Parallel()
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}}
	s.Spec.ClusterIP, s.Spec.IPFamilies = "10.96.0.1", []corev1.IPFamily{corev1.IPv4Protocol}
	const ports, wanted = 1000, maxPairs / 1000
	for i := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), TargetPort: intstr.FromInt32(int32(i + 1))})
	}
	var pods []*corev1.Pod
	for i := range 2 * wanted {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("p", i)}}
		p.Status.PodIPs = []corev1.PodIP{{IP: fmt.Sprintf("10.0.%d.%d", i/250, i%250)}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		if i >= wanted {
			p.Status.Conditions[0].Status = corev1.ConditionTrue
		}
		pods = append(pods, p)
	}
	got := decide(s, pods, nil)
	if len(got.Subsets) != 1 || len(got.Subsets[0].Addresses) != wanted || len(got.Subsets[0].NotReadyAddresses) != 0 ||
		len(got.Subsets[0].Ports) != ports || got.Annotations[corev1.EndpointsOverCapacity] != "truncated" {
		t.Errorf("%d subsets, %v", len(got.Subsets), got.Annotations)
	}
}
