package openapi

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

var configMaps = Resource{
	Version: "v1", Kind: "ConfigMap", Plural: "configmaps", Singular: "configmap", Namespaced: true,
	Verbs: []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
}

func get(t *testing.T, h http.Handler, path string, header ...string) *http.Response {
	t.Helper()
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func readBody(t *testing.T, r *http.Response) []byte {
	t.Helper()
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func groupVersionURLs(t *testing.T, h http.Handler) map[string]string {
	t.Helper()
	var list struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(readBody(t, get(t, h, "/openapi/v3")), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, p := range list.Paths {
		out[name] = p.ServerRelativeURL
	}
	return out
}

func TestServe(t *testing.T) {
	s := New(Options{Resources: []Resource{configMaps}, Version: "v1.37.1"})
	h := s.Handler(slog.New(slog.DiscardHandler))
	url := groupVersionURLs(t, h)["api/v1"]
	if !strings.HasPrefix(url, "/openapi/v3/api/v1?hash=") {
		t.Fatalf("the index has %q", url)
	}
	if len(s.cache.docs) != 0 {
		t.Error("the index must not make documents")
	}
	r := get(t, h, url)
	raw := readBody(t, r)
	if r.StatusCode != 200 || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Cache-Control") != "public, immutable" {
		t.Errorf("%d %v", r.StatusCode, r.Header)
	}
	if !bytes.Contains(raw, []byte(`"listCoreV1NamespacedConfigMap"`)) || !json.Valid(raw) {
		t.Errorf("document: %.200s", raw)
	}
	etag := r.Header.Get("Etag")
	if r := get(t, h, "/openapi/v3/api/v1", "If-None-Match", etag); r.StatusCode != 304 {
		t.Errorf("a known tag: %d", r.StatusCode)
	}
	if r := get(t, h, "/openapi/v3/api/v1?hash=OLD"); r.StatusCode != 301 || r.Header.Get("Location") != url {
		t.Errorf("an old hash: %d %s", r.StatusCode, r.Header.Get("Location"))
	}
	if r := get(t, h, "/openapi/v3/apis/none/v1"); r.StatusCode != 404 {
		t.Errorf("an unknown group: %d", r.StatusCode)
	}
	if r := get(t, h, "/openapi/v2", "Accept", "text/html"); r.StatusCode != 406 {
		t.Errorf("an unknown format: %d", r.StatusCode)
	}
	r = get(t, h, "/openapi/v3/api/v1", "Accept-Encoding", "gzip")
	z, err := gzip.NewReader(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	unpacked, err := io.ReadAll(z)
	if err != nil || !bytes.Equal(unpacked, raw) {
		t.Errorf("the compressed document differs (%v)", err)
	}
}

func TestServeProtobuf(t *testing.T) {
	h := New(Options{Resources: []Resource{configMaps}}).Handler(slog.New(slog.DiscardHandler))
	r := get(t, h, "/openapi/v2", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	if got := r.Header.Get("Content-Type"); got != "application/com.github.proto-openapi.spec.v2.v1.0+protobuf" {
		t.Errorf("content type %q", got)
	}
	doc := &openapi_v2.Document{}
	if err := proto.Unmarshal(readBody(t, r), doc); err != nil || doc.GetSwagger() != "2.0" {
		t.Errorf("document: %v, %v", err, doc.GetSwagger())
	}
	for _, accept := range []string{"application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
		"application/com.github.proto-openapi.spec.v3.v1.0+protobuf"} {
		if r := get(t, h, "/openapi/v3/version", "Accept",
			accept); r.Header.Get("Content-Type") != "application/com.github.proto-openapi.spec.v3.v1.0+protobuf" {
			t.Errorf("%s: %v", accept, r.Header)
		}
	}
}

// TestMetrics checks the schemas of metrics.k8s.io, whose types are from another module than those of the other groups.
func TestMetrics(t *testing.T) {
	h := New(Options{Resources: []Resource{
		{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "NodeMetrics", Plural: "nodes", Verbs: []string{"get", "list"}},
		{Group: "metrics.k8s.io", Version: "v1beta1", Kind: "PodMetrics", Plural: "pods", Namespaced: true, Verbs: []string{"get", "list"}},
	}}).Handler(slog.New(slog.DiscardHandler))
	raw := readBody(t, get(t, h, groupVersionURLs(t, h)["apis/metrics.k8s.io/v1beta1"]))
	var doc struct {
		Paths      map[string]json.RawMessage
		Components struct {
			Schemas map[string]struct {
				Kinds []kind `json:"x-kubernetes-group-version-kind"`
			}
		}
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"nodes", "nodes/{name}", "pods", "namespaces/{namespace}/pods", "namespaces/{namespace}/pods/{name}"} {
		if doc.Paths["/apis/metrics.k8s.io/v1beta1/"+want] == nil {
			t.Errorf("v3 lacks the path of %s", want)
		}
	}
	for _, want := range []string{"NodeMetrics", "NodeMetricsList", "PodMetrics", "PodMetricsList"} {
		got := doc.Components.Schemas["io.k8s.metrics.pkg.apis.metrics.v1beta1."+want].Kinds
		if !slices.Equal(got, []kind{{"metrics.k8s.io", want, "v1beta1"}}) {
			t.Errorf("the schema of %s is of %v", want, got)
		}
	}
	if raw := readBody(t, get(t, h, "/openapi/v2")); !bytes.Contains(raw,
		[]byte(`"#/definitions/io.k8s.metrics.pkg.apis.metrics.v1beta1.PodMetrics"`)) {
		t.Error("v2 lacks what Pods use")
	}
}
