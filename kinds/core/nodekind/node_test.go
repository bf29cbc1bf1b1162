package nodekind

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestUpdateKeepsStatus(t *testing.T) {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec:       corev1.NodeSpec{PodCIDR: "10.0.0.0/24", PodCIDRs: []string{"10.0.1.0/24", "fd00::/64"}},
		Status:     corev1.NodeStatus{Capacity: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2")}},
	}
	d := Nodes(Hooks{})
	d.Default(n)
	d.Prepare(n, nil)
	if cpu := n.Status.Allocatable[corev1.ResourceCPU]; cpu.Value() != 2 || len(n.Spec.PodCIDRs) != 1 ||
		n.Spec.PodCIDRs[0] != "10.0.0.0/24" {
		t.Errorf("got %+v", n)
	}
	changed := n.DeepCopy()
	changed.Status = corev1.NodeStatus{}
	d.Prepare(changed, n)
	if len(changed.Status.Capacity) != 1 {
		t.Errorf("an update lost the status: %+v", changed.Status)
	}
}
