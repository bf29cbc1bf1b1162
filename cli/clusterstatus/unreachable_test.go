package clusterstatus

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestUnreachablePairs checks that a pair of ready nodes is a problem if one of them has the other in the annotation with the nodes
// that its Pods cannot reach, and that the number of reported pairs is bounded.
func TestUnreachablePairs(t *testing.T) {
	node := func(name, unreachable string, ready corev1.ConditionStatus) nodeStatus {
		return describeNode(&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"proa.dev/unreachable-nodes": unreachable}},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
		})
	}
	got := strings.Join(unreachablePairs([]nodeStatus{node("a", "b,c,gone", "True"), node("b", "", "True"), node("c", "a", "False")}), "\n")
	if want := "Pods on node a do not reach those on node b;"; !strings.HasPrefix(got, want) || strings.Contains(got, "\n") {
		t.Errorf("got %s", got)
	}
	var many []nodeStatus
	for i := range 100 {
		many = append(many, node(fmt.Sprint("n", i), "n1,n2", "True"))
	}
	if got := unreachablePairs(many); len(got) != shownNodes+1 || !strings.Contains(got[shownNodes], "180 more pairs") {
		t.Errorf("of many nodes: %d sentences, the last is %s", len(got), got[len(got)-1])
	}
}
