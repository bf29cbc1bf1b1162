package httpapi

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/hop"
)

// BenchmarkCreate measures creates, one after the other, through the pipeline without HTTP. It reports the time of each hop.
func BenchmarkCreate(b *testing.B) {
	r := newRig(b)
	r.Recorder = hop.NewRecorder(1 << 16)
	c := r.Client(r.who)
	var sum [hop.Count + 1]time.Duration
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		out, err := c.Create(b.Context(), configMapsResource(), configMap(fmt.Sprint("c", n)))
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		for _, rec := range r.Recorder.Of(out.GetUID()) {
			for h, d := range rec.Took {
				sum[h] += d
			}
		}
		r.Recorder = hop.NewRecorder(1 << 4)
		b.StartTimer()
	}
	for h := hop.Authenticate; h <= hop.Commit; h++ {
		b.ReportMetric(float64(sum[h].Microseconds())/float64(b.N), h.String()+"-us/op")
	}
}

// BenchmarkRecorder measures creates, one after the other, through the HTTP handler without network and disk, with the
// recorder and without it.
func BenchmarkRecorder(b *testing.B) {
	for name, records := range map[string]int{"off": 0, "on": 8192} {
		b.Run(name, func(b *testing.B) {
			r := newMemoryRig(b, 100)
			r.Recorder = hop.NewRecorder(records)
			data := strings.Repeat("x", 1024)
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				w := httptest.NewRecorder()
				r.send(w, "bench", "POST", configMapsPath, strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"c%d"},"data":{"a":%q}}`, n,
					data)),
					"Content-Type: application/json", "User-Agent: kubectl/v1.37.0 (linux/amd64) kubernetes/0123456")
				if w.Code != http.StatusCreated {
					b.Fatal(w.Body)
				}
			}
		})
	}
}

// BenchmarkGet measures consistent reads, one after the other.
func BenchmarkGet(b *testing.B) {
	r := newRig(b)
	r.create(configMapsResource(), configMap("x"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.request("get", "configmaps", "ns", "x", nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBind measures bindings of Pods, one after the other, as the scheduler writes them: in the same process, with the
// shared cache.
func BenchmarkBind(b *testing.B) {
	r := newRig(b)
	c := r.Client(r.who)
	pods := runtimeschema.GroupResource{Resource: "pods"}
	if err := r.State.Cache(r.State.Def(pods)).WaitUntilFresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		name := fmt.Sprint("p", n)
		r.create(pods, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": "web"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "c", Image: "registry.example/web:1", Env: []corev1.EnvVar{{Name: "A", Value: "b"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m"),
					"memory": resource.MustParse("64Mi")}},
			}}},
		})
		if err := r.State.Cache(r.State.Def(pods)).WaitUntilFresh(b.Context()); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		bind := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Target: corev1.ObjectReference{Kind: "Node", Name: "n1"}}
		if _, err := c.Act(b.Context(), pods, "ns", name, "binding", bind); err != nil {
			b.Fatal(err)
		}
	}
}
