package httpapi_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"proa.dev/proatest"
)

// BenchmarkHTTPCreate measures 32 clients that create ConfigMaps of 1 KiB over HTTP/2 as protobuf, with a store in memory:
// the cost of a create without the disk, including the client.
func BenchmarkHTTPCreate(b *testing.B) {
	c := proatest.Start(b, proatest.Memory())
	web := newHTTPClient(b, c)
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		b.Fatal(err)
	}
	codec := protobuf.NewSerializer(scheme, scheme)
	data := map[string]string{"key": strings.Repeat("x", 1024)}
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("bench-", n.Add(1))}, Data: data}
			obj.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			var body bytes.Buffer
			if err := codec.Encode(obj, &body); err != nil {
				b.Error(err)
				return
			}
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, web.base+"/api/v1/namespaces/default/configmaps", &body)
			if err != nil {
				b.Error(err)
				return
			}
			req.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
			req.Header.Set("Accept", runtime.ContentTypeProtobuf)
			res, err := web.Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
			if res.StatusCode != http.StatusCreated {
				b.Errorf("got %s", res.Status)
				return
			}
		}
	})
}
