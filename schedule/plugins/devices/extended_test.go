package devices

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/internal/textcase"
)

// TestExtended converts the extended resources of Pods to device requests. A case begins with "=== " and its name, and is the spec
// of a Pod; DeviceClasses provide x.org/d and x.org/e. The result follows with a ">".
func TestExtended(t *testing.T) {
	textcase.Play(t, "testdata/extended.txt", "=== ", func(t *testing.T, body string) string {
		in, _, _ := strings.Cut(body, "\n>")
		in = strings.TrimSpace(in) + "\n"
		pod := &corev1.Pod{}
		if err := yaml.UnmarshalStrict([]byte(in), &pod.Spec); err != nil {
			t.Fatal(err)
		}
		e := &extendedRequests{pod: pod, classes: map[corev1.ResourceName]string{"x.org/d": "dees", "x.org/e": "ees"}}
		is := e.buildClaim([]corev1.ResourceName{"x.org/d", "x.org/e"})
		for _, r := range is.claim.Spec.Devices.Requests {
			in += fmt.Sprintf("> %s: %d of %s\n", r.Name, r.Exactly.Count, r.Exactly.DeviceClassName)
		}
		for _, m := range is.mappings {
			in += fmt.Sprintf("> %s has %s for %s\n", m.ContainerName, m.RequestName, m.ResourceName)
		}
		return in
	})
}
