package volume

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestPageSize checks the choice of a page size; mounting needs a machine with huge pages.
func TestPageSize(t *testing.T) {
	for _, x := range []struct{ medium, requests, want, fails string }{
		{"HugePages", "2Mi", "2Mi", ""},
		{"HugePages", "2Mi 2Mi", "2Mi", ""},
		{"HugePages", "2Mi 1Gi", "", "medium: HugePages can't be used if container requests multiple huge page sizes"},
		{"HugePages", "", "", "medium"},
		{"HugePages-1Gi", "2Mi 1Gi", "1Gi", ""},
		{"HugePages-1Gi", "2Mi", "", "medium"},
		{"HugePages-some", "2Mi", "", "medium HugePages-some: quantities must match"},
	} {
		p := &corev1.Pod{}
		for size := range strings.FieldsSeq(x.requests) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceName(corev1.ResourceHugePagesPrefix + size): resource.MustParse("1Gi")},
			}})
		}
		got, err := pageSize(p, corev1.StorageMedium(x.medium))
		if got != x.want || (err == nil) != (x.fails == "") || err != nil && !strings.Contains(err.Error(), x.fails) {
			t.Errorf("%s with %s: %q, %v; want %q %s", x.medium, x.requests, got, err, x.want, x.fails)
		}
	}
}
