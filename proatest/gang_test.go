package proatest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
)

// TestGang checks that the Pods of a group are bound all together: not before there are enough, and none if not all fit.
func TestGang(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.Simulate(2), proatest.InDir(dir), func(c *run.Config) {
			c.Features = map[string]bool{"GenericWorkload": true}
		})
		defer c.Stop()
		time.Sleep(5 * time.Second)
		groups := schema.GroupResource{Group: "scheduling.k8s.io", Resource: "podgroups"}
		group := func(name string, least int32) {
			g := &schedulingv1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
			g.Spec.SchedulingPolicy.Gang = &schedulingv1beta1.GangSchedulingPolicy{MinCount: least}
			if _, err := c.Client.Create(t.Context(), groups, g); err != nil {
				t.Fatal(err)
			}
		}
		pods := func(of, cpu string, from, to int) {
			for i := from; i < to; i++ {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(of, "-", i)}, Spec: corev1.PodSpec{
					SchedulingGroup: &corev1.PodSchedulingGroup{PodGroupName: &of},
					Containers: []corev1.Container{{Name: "c", Image: "nginx",
						Resources: corev1.ResourceRequirements{
							Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}},
				}}
				if _, err := c.Client.Create(t.Context(), gr.Pods, p); err != nil {
					t.Fatal(err)
				}
			}
		}
		bound := func(of string) (n int) {
			time.Sleep(time.Minute)
			synctest.Wait()
			for o := range open(t, c, "pods").List("default") {
				if p := o.(*corev1.Pod); *p.Spec.SchedulingGroup.PodGroupName == of && p.Spec.NodeName != "" {
					n++
				}
			}
			return n
		}
		scheduled := func(name string) bool {
			o, err := c.Client.Get(t.Context(), groups, "default", name, "")
			if err != nil {
				t.Fatal(err)
			}
			return meta.IsStatusConditionTrue(o.(*schedulingv1beta1.PodGroup).Status.Conditions,
				schedulingv1beta1.PodGroupInitiallyScheduled)
		}
		group("small", 3)
		pods("small", "1", 0, 2)
		if n := bound("small"); n != 0 || scheduled("small") {
			t.Errorf("%d Pods of a gang of three are bound while there are two", n)
		}
		pods("small", "1", 2, 3)
		if n := bound("small"); n != 3 || !scheduled("small") {
			t.Errorf("%d Pods of a gang of three are bound, want all", n)
		}
		group("large", 3)
		pods("large", "20", 0, 3) // a node has room for one
		if n := bound("large"); n != 0 || scheduled("large") {
			t.Errorf("%d Pods of a gang are bound that has no room for all", n)
		}
		group("later", 2)
		pods("later", "20", 0, 2)
		time.Sleep(20 * time.Minute) // the others give up their places, now and then
		if n := bound("later") + bound("large"); n != 2 && n != 0 {
			t.Errorf("%d Pods of two gangs are bound, of which one has room for its two", n)
		}
	})
}
