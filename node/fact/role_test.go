package fact

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestAnnotationsMakeNoPodOfTheAPIStatic checks that annotations do not make a Pod of the API static or critical, because
// users who may create Pods may set them.
func TestAnnotationsMakeNoPodOfTheAPIStatic(t *testing.T) {
	created := metav1.NewTime(time.Unix(1, 0)) // the API server sets it for every Pod
	for _, test := range []struct {
		annotation, value string
		created           metav1.Time
		priority          *int32
		static, critical  bool
	}{
		{annotation: sourceAnnotation, value: "file", static: true, critical: true},
		{annotation: sourceAnnotation, value: "http", static: true, critical: true},
		{annotation: sourceAnnotation, value: "api"},
		{annotation: sourceAnnotation, value: "file", created: created},
		{annotation: sourceAnnotation, value: "http", created: created},
		{annotation: sourceAnnotation, value: "", created: created},
		{annotation: corev1.MirrorPodAnnotationKey, value: "x", created: created},
		{annotation: corev1.MirrorPodAnnotationKey, value: "", created: created},
		{annotation: "kubernetes.io/config.hash", value: "x", created: created},
		{annotation: "kubernetes.io/config.seen", value: "x", created: created},
		{annotation: sourceAnnotation, value: "file", created: created, priority: new(int32(2_000_000_000)), critical: true},
		{annotation: sourceAnnotation, value: "file", created: created, priority: new(int32(1_000_000_000))},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: test.created,
			Annotations: map[string]string{test.annotation: test.value}}, Spec: corev1.PodSpec{Priority: test.priority}}
		if Static(p) != test.static || Critical(p) != test.critical {
			t.Errorf("%+v: static %v, critical %v", test, Static(p), Critical(p))
		}
	}
}
