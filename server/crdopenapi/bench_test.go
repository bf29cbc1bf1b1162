package crdopenapi

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/server/openapi"
)

// nestedSchema returns a schema with this number of levels of six fields each, every other of which has no fields below it.
func nestedSchema(levels int) apiextensionsv1.JSONSchemaProps {
	if levels == 0 {
		return apiextensionsv1.JSONSchemaProps{Type: "string", Description: "What this field is for, in about the words that people use.",
			Nullable: true}
	}
	s := apiextensionsv1.JSONSchemaProps{Type: "object", Description: "Some fields that belong together.",
		Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for i := range 6 {
		s.Properties[fmt.Sprintf("field%d", i)] = nestedSchema(levels - 1)
	}
	return s
}

// makeDefinitions returns n definitions of the size that operators install: 258 fields, some 30 KB of JSON.
func makeDefinitions(n int) (out []*Definition) {
	for i := range n {
		d := &Definition{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(i)), Generation: 1}}
		d.Spec.Group, d.Spec.Scope = fmt.Sprintf("g%d.example.com", i/10), apiextensionsv1.NamespaceScoped
		d.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: fmt.Sprint("Kind", i), ListKind: fmt.Sprint("Kind", i, "List"),
			Plural: fmt.Sprint("kind", i, "s")}
		spec := nestedSchema(3)
		d.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
			}},
		}}
		d.Name = d.Spec.Names.Plural + "." + d.Spec.Group
		out = append(out, established(d))
	}
	return out
}

// BenchmarkThousandDefinitions builds the documents of 1,000 definitions. It reports their size, and by how much the heap
// has grown at most.
func BenchmarkThousandDefinitions(b *testing.B) {
	definitions := makeDefinitions(1000)
	for _, test := range []struct{ name, path, accept string }{
		{"v2", "/openapi/v2", "application/json"},
		{"v2-protobuf", "/openapi/v2", "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"},
		{"v3", "/openapi/v3/apis/g7.example.com/v1", "application/json"},
		{"index", "/openapi/v3", "*/*"},
	} {
		b.Run(test.name, func(b *testing.B) {
			peak := watchHeap(b)
			var size int
			for b.Loop() {
				s := openapi.New(openapi.Options{Groups: func() []openapi.Group { return Groups(sources(definitions)) }})
				r := httptest.NewRequest("GET", test.path, nil)
				r.Header.Set("Accept", test.accept)
				r.Header.Set("Accept-Encoding", "gzip")
				w := httptest.NewRecorder()
				s.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
				if size = w.Body.Len(); w.Code != 200 {
					b.Fatal(w.Code, w.Body)
				}
			}
			b.ReportMetric(float64(size), "bytes")
			b.ReportMetric(float64(peak())/1e6, "peak-MB")
		})
	}
}

// watchHeap measures the growth of the heap until the returned function is called, which returns the maximum.
func watchHeap(b *testing.B) func() uint64 {
	runtime.GC()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				if h := heap(); h > before {
					peak.Store(max(peak.Load(), h-before))
				}
			}
		}
	}()
	return func() uint64 {
		close(stop)
		<-stopped
		return peak.Load()
	}
}
