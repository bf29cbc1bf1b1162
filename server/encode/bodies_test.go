package encode

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
)

// TestBodyOf checks that an object comes back as JSON as it was when it was encoded, whether it has a protobuf form or not, and with its
// kind.
func TestBodyOf(t *testing.T) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: map[string]string{"k": "v"}}
	b := BodyOf(m, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})
	m.Data["k"] = "changed"
	text, err := b.JSON(b.Data)
	if got := string(text); err != nil || got != `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"data":{"k":"v"}}` {
		t.Errorf("%s %v", got, err)
	}
	if _, err := b.JSON([]byte("\xff")); err == nil {
		t.Error("a damaged body is shown")
	}
	custom := &unstructured.Unstructured{Object: map[string]any{"kind": "Own", "spec": map[string]any{"a": int64(1)}}}
	b = BodyOf(custom, schema.GroupVersionKind{})
	if want := `{"kind":"Own","spec":{"a":1}}`; b.JSON != nil || string(b.Data) != want || b.Type != "application/json" ||
		b.Size != len(want) {
		t.Errorf("%+v %s", b, b.Data)
	}
	custom.Object["spec"] = strings.Repeat("x", hop.MaxBody)
	if b = BodyOf(custom, schema.GroupVersionKind{}); b.Data != nil || b.Size <= hop.MaxBody {
		t.Errorf("%d of %d bytes of a large object are kept", len(b.Data), b.Size)
	}
}

// TestBodyOfLeavesTheObjectAlone: an object that is shared with others must not change while it is encoded, not even the text that a
// quantity remembers of itself.
func TestBodyOfLeavesTheObjectAlone(t *testing.T) {
	read := func() *corev1.Pod { // as the cache has it
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: new(resource.MustParse("0.5Gi"))}}}}}}
		data, err := pod.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if *pod = (corev1.Pod{}); pod.Unmarshal(data) != nil {
			t.Fatal("the Pod cannot be decoded")
		}
		return pod
	}
	pod := read()
	if BodyOf(pod, schema.GroupVersionKind{}); !reflect.DeepEqual(pod, read()) {
		t.Error("the object has changed")
	}
}

// BenchmarkBodyOf measures what one body of a Pod costs.
func BenchmarkBodyOf(b *testing.B) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/web:1"}}}}
	b.ReportAllocs()
	for b.Loop() {
		BodyOf(pod, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
	}
}
