package openapi

import (
	"encoding/json"
	"io"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"sigs.k8s.io/yaml"

	"proa.dev/server/openapi/openapiproto"
)

// normalizeYAML rewrites every YAML text in a message as canonical JSON, because the same value can be
// written in several ways.
func normalizeYAML(t *testing.T, m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.Name() == "yaml":
			raw, err := yaml.YAMLToJSON([]byte(v.String()))
			if err != nil {
				t.Fatalf("yaml %q: %v", v.String(), err)
			}
			m.Set(f, protoreflect.ValueOfString(string(raw)))
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				normalizeYAML(t, v.List().Get(i).Message())
			}
		case f.Message() != nil && !f.IsList():
			normalizeYAML(t, v.Message())
		}
		return true
	})
}

func TestProtoV3(t *testing.T) {
	s := New(Options{Resources: publishedResources(t, publishedDir(t)), Version: "v1.37.1"})
	for _, name := range []string{"version", "apis/coordination.k8s.io/v1", "apis/apps/v1", "apis/apiextensions.k8s.io/v1"} {
		raw, err := buildDocument(func(w io.Writer) error { return s.writeV3(name, w, nil) })
		if err != nil {
			t.Fatal(err)
		}
		want, err := openapi_v3.ParseDocument(raw)
		if err != nil {
			t.Fatal(err)
		}
		wire, err := buildDocument(func(w io.Writer) error { return s.writeV3(name, w, openapiproto.NewV3()) })
		if err != nil {
			t.Fatal(err)
		}
		got := &openapi_v3.Document{}
		if err := proto.Unmarshal(wire, got); err != nil {
			t.Fatal(err)
		}
		compareProto(t, name, got, want)
	}
}

func TestProtoV2(t *testing.T) {
	all := publishedResources(t, publishedDir(t))
	s := New(Options{Resources: all, Version: "v1.37.1"})
	compareV2(t, s)
}

// compareV2 checks that the OpenAPI v2 document says the same in protobuf as in JSON.
func compareV2(t *testing.T, s *Service) {
	t.Helper()
	raw, err := buildDocument(func(w io.Writer) error { return s.writeV2(w, nil) })
	if err != nil {
		t.Fatal(err)
	}
	want, err := openapi_v2.ParseDocument(raw)
	if err != nil {
		t.Fatal(err)
	}
	wire, err := buildDocument(func(w io.Writer) error { return s.writeV2(w, openapiproto.NewV2()) })
	if err != nil {
		t.Fatal(err)
	}
	got := &openapi_v2.Document{}
	if err := proto.Unmarshal(wire, got); err != nil {
		t.Fatal(err)
	}
	compareProto(t, "v2", got, want)
}

func compareProto(t *testing.T, name string, got, want proto.Message) {
	t.Helper()
	normalizeYAML(t, got.ProtoReflect())
	normalizeYAML(t, want.ProtoReflect())
	if proto.Equal(got, want) {
		return
	}
	a, err := json.MarshalIndent(got, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.MarshalIndent(want, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	from := max(0, i-400)
	t.Errorf("%s differs at %d:\n got %.800s\nwant %.800s", name, i, a[from:], b[from:])
}
