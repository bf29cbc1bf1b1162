package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/kind/kindtest"
)

func TestNamespaceDeletion(t *testing.T) {
	d, n := Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	d.Default(n)
	d.Prepare(n, nil)
	if n.Labels["kubernetes.io/metadata.name"] != "a" || n.Status.Phase != corev1.NamespaceActive || !d.Deletion.IsHeld(n) {
		t.Errorf("got %+v", n)
	}
	d.Deletion.Begin(n)
	if n.Spec.Finalizers = nil; n.Status.Phase != corev1.NamespaceTerminating || d.Deletion.IsHeld(n) {
		t.Errorf("got %+v", n)
	}
}

func TestQuotaColumns(t *testing.T) {
	q := &corev1.ResourceQuota{Status: corev1.ResourceQuotaStatus{
		Hard: corev1.ResourceList{"pods": resource.MustParse("3"), "limits.cpu": resource.MustParse("2"),
			"requests.cpu": resource.MustParse("1")},
		Used: corev1.ResourceList{"pods": resource.MustParse("1")},
	}}
	row := ResourceQuotas().Row(q)
	if row[1] != "pods: 1/3, requests.cpu: 0/1" || row[2] != "limits.cpu: 0/2" {
		t.Errorf("got %q", row)
	}
}

func TestComponentStatuses(t *testing.T) {
	d := ComponentStatuses()
	all, err := d.Computed(t.Context(), kindtest.NewCluster(), kind.Selection{})
	if err != nil || len(all) != 3 {
		t.Fatalf("got %v, %v", all, err)
	}
	if row := d.Row(all[2]); row[0] != "etcd-0" || row[1] != "Healthy" || row[2] != "ok" {
		t.Errorf("got %v", row)
	}
}
