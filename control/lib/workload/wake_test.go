package workload

import (
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"proa.dev/kinds/kind"
)

// TestOwnersAreFoundBySelector checks under which label an owner is found: one that all objects have which its selector matches.
func TestOwnersAreFoundBySelector(t *testing.T) {
	t.Parallel()
	index := bySelector(func(o kind.Object) labels.Selector { return Selector(o.(*appsv1.ReplicaSet).Spec.Selector) })
	for text, want := range map[string]string{
		"b=2,a=1": "ns/a=1", "a in (1)": "ns/a=1", "a in (1,2),c=3": "ns/c=3", "a notin (1),b=2": "ns/b=2", "a": "ns/=",
		"!a": "ns/=", "a notin (1)": "ns/=",
	} {
		s, err := metav1.ParseToLabelSelector(text)
		if err != nil {
			t.Fatal(err)
		}
		rs := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}, Spec: appsv1.ReplicaSetSpec{Selector: s}}
		if got := index.Values(rs); !slices.Equal(got, []string{want}) {
			t.Errorf("%s is found under %v, want %s", text, got, want)
		}
	}
	if got := index.Values(&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{}}}); got != nil {
		t.Errorf("one that selects everything is found under %v", got)
	}
}
