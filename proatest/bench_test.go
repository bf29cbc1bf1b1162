package proatest_test

import (
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// BenchmarkBind measures Pods from their creation to their binding in a whole control plane.
func BenchmarkBind(b *testing.B) {
	c := proatest.Start(b)
	for i := range 100 {
		list := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1000"), corev1.ResourceMemory: resource.MustParse("1000Gi"),
			corev1.ResourcePods: resource.MustParse("100000")}
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node-", i),
			Labels: map[string]string{corev1.LabelHostname: fmt.Sprint("node-", i)}}}
		o, err := c.Client.Create(b.Context(), gr.Nodes, n)
		if err != nil {
			b.Fatal(err)
		}
		n = o.(*corev1.Node)
		n.ResourceVersion = "" // the node controller writes too
		n.Status.Allocatable, n.Status.Capacity = list, list
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		if _, err := c.Client.Update(b.Context(), gr.Nodes, n, "status"); err != nil {
			b.Fatal(err)
		}
	}
	v, err := c.Client.View(b.Context(), gr.Pods)
	if err != nil {
		b.Fatal(err)
	}
	bound := make(chan struct{}, b.N)
	var wg sync.WaitGroup
	wg.Go(func() {
		left := b.N
		for ev := range v.Events(b.Context()) {
			now := ev.Object.(*corev1.Pod).Spec.NodeName
			if was, ok := ev.Old.(*corev1.Pod); now != "" && (!ok || was.Spec.NodeName == "") {
				bound <- struct{}{}
				if left--; left == 0 {
					return
				}
			}
		}
	})
	b.ReportAllocs()
	b.ResetTimer()
	work := make(chan int, b.N)
	for i := range b.N {
		work <- i
	}
	close(work)
	for range 32 {
		wg.Go(func() {
			for i := range work {
				p := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("pod-", i)},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "pause",
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m"),
								corev1.ResourceMemory: resource.MustParse("100Mi")},
						}}}},
				}
				if _, err := c.Client.Create(b.Context(), gr.Pods, p); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	for range b.N {
		<-bound
	}
	b.StopTimer()
	wg.Wait()
}
