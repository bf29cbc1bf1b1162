package downward_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/node/volume/downward"
)

func resources(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func testPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "123",
			Labels:      map[string]string{"b": "two", "a": "one"},
			Annotations: map[string]string{"Quoted": "a \"b\"\nc", "x/y": "z"},
		},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "first", Resources: corev1.ResourceRequirements{Limits: resources("cpu", "100m")}}},
			Containers: []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{
				Requests: resources("cpu", "250m", "memory", "33Mi", "hugepages-2Mi", "4Mi"),
				Limits:   resources("cpu", "1250m", "hugepages-2Mi", "4Mi"),
			}}},
		},
	}
}

func TestField(t *testing.T) {
	for path, want := range map[string]string{
		"metadata.name":                   "web",
		"metadata.namespace":              "shop",
		"metadata.uid":                    "123",
		"metadata.labels":                 "a=\"one\"\nb=\"two\"",
		"metadata.annotations":            "Quoted=\"a \\\"b\\\"\\nc\"\nx/y=\"z\"",
		"metadata.labels['a']":            "one",
		"metadata.labels['none']":         "",
		"metadata.annotations['x/y']":     "z",
		"metadata.annotations['Quoted']":  "a \"b\"\nc",
		"metadata.labels['']":             "error: invalid key subscript in metadata.labels['']: name part must be non-empty;name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
		"metadata.name['a']":              `error: fieldPath "metadata.name['a']" does not support subscript`,
		"spec.nodeName":                   "error: unsupported fieldPath: spec.nodeName",
		"metadata.annotations['unclosed'": "error: unsupported fieldPath: metadata.annotations['unclosed'",
	} {
		got, err := downward.Field(testPod(), path)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", path, got, want)
		}
	}
}

func TestResource(t *testing.T) {
	allocatable := resources("cpu", "4", "memory", "1Gi", "ephemeral-storage", "10G")
	for _, c := range []struct{ container, resource, divisor, want string }{
		{"c", "limits.cpu", "0", "2"},
		{"c", "limits.cpu", "1m", "1250"},
		{"c", "requests.cpu", "1", "1"},
		{"c", "requests.memory", "1Mi", "33"},
		{"c", "requests.memory", "1Gi", "1"},
		{"c", "limits.memory", "1Mi", "1024"},
		{"c", "limits.ephemeral-storage", "1G", "10"},
		{"c", "requests.ephemeral-storage", "1", "0"},
		{"c", "limits.hugepages-2Mi", "1Mi", "4"},
		{"first", "limits.cpu", "1m", "100"},
		{"first", "requests.cpu", "1m", "0"},
		{"c", "limits.nvidia.com/gpu", "1", "error: unsupported container resource : limits.nvidia.com/gpu"},
		{"c", "cpu", "1", "error: unsupported container resource : cpu"},
		{"none", "limits.cpu", "1", "error: container none not found"},
	} {
		got, err := downward.Resource(testPod(),
			&corev1.ResourceFieldSelector{ContainerName: c.container, Resource: c.resource, Divisor: resource.MustParse(c.divisor)},
			allocatable)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s of %s by %s: got %q, want %q", c.resource, c.container, c.divisor, got, c.want)
		}
	}
}
