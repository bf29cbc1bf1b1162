package openapi

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// aggregatedDocument is the v2 document of an aggregated server, with paths of other groups, a definition with the name of
// one of this server but another content, and references to other documents.
const aggregatedDocument = `{"swagger":"2.0","info":{"title":"evil","version":"9"},
"paths":{
"/apis/pond.example.com/v1/frogs":{"get":{"operationId":"listFrogs","parameters":[{"$ref":"#/parameters/wet-1"},{"$ref":"http://192.0.2.1/p"}],
  "responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/com.example.Frog"}}}}},
"/apis/apps/v1/deployments":{"get":{"operationId":"stolen"}},
"/api/v1/pods":{"get":{"operationId":"stolen"}}},
"definitions":{
"com.example.Frog":{"type":"object","properties":{"pod":{"$ref":"#/definitions/io.k8s.api.core.v1.Pod"},"again":{"$ref":"#/definitions/com.example.Frog"},"far":{"$ref":"http://192.0.2.1/d"}}},
"io.k8s.api.core.v1.Pod":{"type":"object","description":"not that Pod"},
"com.example.Unused":{"type":"object"}},
"parameters":{"wet-1":{"in":"query","name":"wet","type":"boolean"},"unused-1":{"in":"query","name":"x","type":"string"}}}`

// TestAggregatedDocuments checks that the v2 document has the paths of aggregated servers and what they refer to, that
// these servers cannot describe other groups, replace definitions or refer to other documents, and that a server
// without a document is left out.
func TestAggregatedDocuments(t *testing.T) {
	groups := []Group{
		{Group: "pond.example.com", Version: "v1", Tag: "a", Document: func() ([]byte, error) { return []byte(`{"openapi":"3.0.0"}`), nil },
			DocumentV2: func() ([]byte, error) { return []byte(aggregatedDocument), nil }},
		{Group: "dead.example.com", Version: "v1", Tag: "a", DocumentV2: func() ([]byte, error) { return nil, errors.New("dead") }},
		{Group: "odd.example.com", Version: "v1", Tag: "a", DocumentV2: func() ([]byte, error) { return []byte(`[`), nil }},
	}
	s := New(Options{Groups: func() []Group { return groups }, Version: "1"})
	for _, accept := range []string{"application/json", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/openapi/v2", http.NoBody)
		req.Header.Set("Accept", accept)
		rec := httptest.NewRecorder()
		s.Handler(slog.New(slog.DiscardHandler)).ServeHTTP(rec, req)
		if rec.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", accept, rec.Code, rec.Body)
		}
		if strings.Contains(rec.Body.String(), "192.0.2.1") || strings.Contains(rec.Body.String(), "stolen") ||
			!strings.Contains(rec.Body.String(), "/apis/pond.example.com/v1/frogs") {
			t.Errorf("%s: the document is wrong", accept)
		}
		if accept != "application/json" {
			continue
		}
		var doc struct {
			Info                           struct{ Title string }
			Paths, Definitions, Parameters map[string]any
		}
		if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
			t.Fatal(err)
		}
		frog, _ := json.Marshal(doc.Definitions["com.example.Frog"])
		if want := `{"properties":{"again":{"$ref":"#/definitions/com.example.Frog"},"far":{},"pod":{"$ref":"#/definitions/io.k8s.api.core.v1.Pod`; !strings.HasPrefix(string(frog), want) {
			t.Errorf("the definition is %s", frog)
		}
		if doc.Info.Title != "Kubernetes" || doc.Parameters["wet-1"] == nil || doc.Parameters["unused-1"] != nil ||
			doc.Definitions["com.example.Unused"] != nil {
			t.Errorf("the document is of %q, with the parameters %v", doc.Info.Title, doc.Parameters)
		}
	}
}

// TestAggregatedNames checks that a definition whose name is taken by another one is renamed everywhere.
func TestAggregatedNames(t *testing.T) {
	f, err := readAggregated([]byte(aggregatedDocument), "pond.example.com", "v1")
	if err != nil {
		t.Fatal(err)
	}
	taken := map[string]any{"io.k8s.api.core.v1.Pod": object{"type": "object"}, "io.k8s.api.core.v1.Pod_v2": object{"type": "string"}}
	have := func(name string) (any, bool) { v, ok := taken[name]; return v, ok }
	f.rename(have, func(name string) (any, bool) { return object{}, name == "wet-1" })
	text, err := json.Marshal([]any{f.paths, f.definitions, f.parameters})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"pod":{"$ref":"#/definitions/io.k8s.api.core.v1.Pod_v3"}`,
		`"io.k8s.api.core.v1.Pod_v3":{"description":"not that Pod"`, `{"$ref":"#/parameters/wet-1_v2"}`, `"wet-1_v2":{`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%s lacks %s", text, want)
		}
	}
	if strings.Contains(string(text), `"wet-1"`) || f.definitions["io.k8s.api.core.v1.Pod"] != nil {
		t.Errorf("an old name is left in %s", text)
	}
}
