package clusterstatus

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDescribeNode(t *testing.T) {
	node := func(unschedulable bool, conditions ...corev1.NodeCondition) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.NodeSpec{Unschedulable: unschedulable},
			Status: corev1.NodeStatus{Conditions: conditions,
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"},
					{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}},
		}
	}
	for _, c := range []struct {
		node        *corev1.Node
		words, text string
	}{
		{node(false, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			Message: "kubelet is posting ready status"}), "ready, 192.0.2.7", ""},
		{node(true, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}), "ready, takes no new Pods, 192.0.2.7", ""},
		{node(false, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Message: "gone"}),
			"not ready, 192.0.2.7", "gone"},
		{node(false), "not ready, 192.0.2.7", "it has not reported its status"},
	} {
		if got := describeNode(c.node); got.describe() != c.words || got.Text != c.text {
			t.Errorf("%q, %q; want %q, %q", got.describe(), got.Text, c.words, c.text)
		}
	}
}

// TestShortages checks that a node without disk space or memory is reported although it is ready.
func TestShortages(t *testing.T) {
	got := describeNode(&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: "kubelet has disk pressure"},
		{Type: "Other", Status: corev1.ConditionTrue},
	}}})
	want := "is short of disk space: kubelet has disk pressure (DiskPressure)"
	if !got.Ready || len(got.Shortages) != 1 || got.Shortages[0] != want || got.describe() != "ready, short of disk space" {
		t.Errorf("got %+v", got)
	}
}

func TestTunnels(t *testing.T) {
	nodes := []nodeStatus{{Name: "a", Ready: true}, {Name: "b", Ready: true, Address: "192.0.2.7"}}
	markTunnels(nodes, []byte("# HELP proa_node_tunnel_streams x\nproa_node_tunnel_streams{node=\"b\"} 0\nproa_node_tunnel_streams{node=\"ab\"} 0\n"))
	if got := nodes[0].describe() + "; " + nodes[1].describe(); got != "ready; ready, 192.0.2.7, tunnel" {
		t.Error(got)
	}
}
