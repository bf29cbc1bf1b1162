package deviceallocator

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestSearchIsBounded claims 32 devices with different values, of 128 devices with only 30 values: there is no solution, and too
// many combinations to try all. The search ends on every node, and an easy allocation is still found afterwards.
func TestSearchIsBounded(t *testing.T) {
	value := func(i int) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
		return map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{"value": {StringValue: new(fmt.Sprint(i % 30))}}
	}
	s := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
		Driver: "d", AllNodes: new(true), Pool: resourcev1.ResourcePool{Name: "p", ResourceSliceCount: 1},
	}}
	for i := range 128 {
		s.Spec.Devices = append(s.Spec.Devices, resourcev1.Device{Name: fmt.Sprint("g", i), Attributes: value(i)})
	}
	claims := func(count int64) []*resourcev1.ResourceClaim {
		return []*resourcev1.ResourceClaim{{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
			Requests: []resourcev1.DeviceRequest{{Name: "r",
				Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "any", Count: count}}},
			Constraints: []resourcev1.DeviceConstraint{{DistinctAttribute: new(resourcev1.FullyQualifiedName("d/value"))}},
		}}}}
	}
	a := New(Input{
		Slices: []*resourcev1.ResourceSlice{s}, NewID: func() types.UID { return "" },
		Class: func(name string) *resourcev1.DeviceClass {
			return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		},
	})
	for i := range 100 {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}}
		if _, err := a.Allocate(node, claims(32)); !errors.Is(err, errTooLong) {
			t.Fatalf("node %d: %v", i, err)
		}
		if got, err := a.Allocate(node, claims(30)); err != nil || len(got) != 1 {
			t.Fatalf("node %d: got %v, %v", i, got, err)
		}
	}
}
