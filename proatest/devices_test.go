package proatest_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// TestDevicesBySelector checks that a Pod gets the one device that the expressions of its class and its claim select, on the
// node that has it.
func TestDevicesBySelector(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := proatest.Start(t, proatest.Memory(), proatest.Alone(), proatest.Simulate(2), proatest.InDir(dir))
		defer c.Stop()
		time.Sleep(5 * time.Second)
		var nodes []string
		for o := range open(t, c, "nodes").List("") {
			nodes = append(nodes, o.GetName())
		}
		if len(nodes) != 2 {
			t.Fatalf("nodes %v, want two", nodes)
		}
		selector := func(expression string) []resourcev1.DeviceSelector {
			return []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
		}
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
		class.Spec.Selectors = selector(`device.driver ==`)
		if _, err := c.Client.Create(t.Context(), gr.DeviceClasses, class); err == nil ||
			!strings.Contains(err.Error(), "spec.selectors[0].cel.expression: Invalid value") {
			t.Fatalf("a class with half an expression: %v, want that it is invalid", err)
		}
		class.Spec.Selectors = selector(`device.driver == "gpu.example.com"`)
		if _, err := c.Client.Create(t.Context(), gr.DeviceClasses, class); err != nil {
			t.Fatal(err)
		}
		for i, node := range nodes {
			model := []string{"small", "large"}[i]
			slice := &resourcev1.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: resourcev1.ResourceSliceSpec{
				Driver: "gpu.example.com", NodeName: &nodes[i], Pool: resourcev1.ResourcePool{Name: node, ResourceSliceCount: 1},
				Devices: []resourcev1.Device{{Name: "gpu-0",
					Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"model": {StringValue: &model}}}},
			}}
			if _, err := c.Client.Create(t.Context(), gr.ResourceSlices, slice); err != nil {
				t.Fatal(err)
			}
		}
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "one"}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "gpu", Exactly: &resourcev1.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: 1,
			Selectors: selector(`device.attributes["gpu.example.com"].model == "large"`),
		}}}
		if _, err := c.Client.Create(t.Context(), gr.ResourceClaims, claim); err != nil {
			t.Fatal(err)
		}
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "user"}, Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimName: new("one")}},
			Containers: []corev1.Container{{Name: "c", Image: "nginx",
				Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "gpu"}}}}},
		}}
		if _, err := c.Client.Create(t.Context(), gr.Pods, pod); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if on := getOnly[*corev1.Pod](t, open(t, c, "pods"), "default").Spec.NodeName; on != nodes[1] {
			t.Errorf("the Pod is on %q, want %q", on, nodes[1])
		}
		o, err := c.Client.Get(t.Context(), gr.ResourceClaims, "default", "one", "")
		if err != nil {
			t.Fatal(err)
		}
		if a := o.(*resourcev1.ResourceClaim).Status.Allocation; a == nil || len(a.Devices.Results) != 1 ||
			a.Devices.Results[0].Pool != nodes[1] {
			t.Errorf("the claim has %+v, want the device of %s", a, nodes[1])
		}
	})
}
