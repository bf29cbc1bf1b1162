package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// newCustom returns a custom resource whose kind has one field.
func newCustom(group, version, kind string) Custom {
	return Custom{
		Group: group, Version: version, Kind: kind, ListKind: kind + "List", Plural: strings.ToLower(kind) + "s", Namespaced: true,
		Status: true, Scale: true,
		Schema: func(d Dialect) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(`{"type":"object","description":"version %d","properties":{"metadata":{"$ref":%q}}}`, d, d.Reference(metaV1+"ObjectMeta")))
		},
		List: func(d Dialect, object string) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(`{"type":"object","properties":{"items":{"type":"array","items":{"$ref":%q}}}}`, d.Reference(object)))
		},
	}
}

func newGroup(tag string, customs ...Custom) Group {
	return Group{Group: customs[0].Group, Version: customs[0].Version, Tag: tag, Custom: func() []Custom { return slices.Clone(customs) }}
}

func handler(s *Service) http.Handler { return s.Handler(slog.New(slog.DiscardHandler)) }

type parsed struct {
	Info       struct{ Title string }
	Paths      map[string]map[string]json.RawMessage
	Components struct {
		Schemas map[string]json.RawMessage
	}
	Definitions map[string]json.RawMessage
}

func parse(t *testing.T, raw []byte) (p parsed) {
	t.Helper()
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatalf("%v in %.300s", err, raw)
	}
	return p
}

func TestCustomGroups(t *testing.T) {
	other := Group{Group: "other.example.com", Version: "v1beta1", Tag: "a",
		Document: func() ([]byte, error) { return []byte(`{"openapi":"3.0.0"}`), nil }}
	groups := []Group{newGroup("1", newCustom("stable.example.com", "v1", "CronTab")), other}
	s := New(Options{Resources: []Resource{configMaps}, Groups: func() []Group { return groups }})
	h := handler(s)

	before := groupVersionURLs(t, h)
	if _, ok := before["apis/stable.example.com"]; ok {
		t.Error("a group of custom resources alone has no document of its own")
	}
	url := before["apis/stable.example.com/v1"]
	first := get(t, h, url)
	v3 := parse(t, readBody(t, first))
	for _, want := range []string{"com.example.stable.v1.CronTab", "com.example.stable.v1.CronTabList", "io.k8s.api.autoscaling.v1.Scale",
		metaV1 + "OwnerReference"} {
		if v3.Components.Schemas[want] == nil {
			t.Errorf("v3 lacks %s", want)
		}
	}
	if v3.Paths["/apis/stable.example.com/v1/namespaces/{namespace}/crontabs/{name}/scale"]["patch"] == nil || len(v3.Paths) != 5 {
		t.Errorf("v3 has the paths %v", v3.Paths)
	}
	v2 := parse(t, readBody(t, get(t, h, "/openapi/v2")))
	if raw := v2.Definitions["com.example.stable.v1.CronTab"]; !bytes.Contains(raw, []byte("version 2")) ||
		!bytes.Contains(raw, []byte(`"#/definitions/`)) {
		t.Errorf("v2 has the schema %s", raw)
	}
	if raw := readBody(t, get(t, h, "/openapi/v3/apis/other.example.com/v1beta1")); string(raw) != `{"openapi":"3.0.0"}` {
		t.Errorf("another server's document: %s", raw)
	}
	oldV2 := get(t, h, "/openapi/v2").Header.Get("Etag")
	if r := get(t, h, url, "If-None-Match", first.Header.Get("Etag")); r.StatusCode != http.StatusNotModified {
		t.Errorf("a known tag: %d", r.StatusCode)
	}

	groups[0] = newGroup("2", newCustom("stable.example.com", "v1", "CronTab"), newCustom("stable.example.com", "v1", "Backup"))
	after := groupVersionURLs(t, h)
	for name, was := range before {
		if changed := after[name] != was; changed != (name == "apis/stable.example.com/v1") {
			t.Errorf("%s: was %s, is %s", name, was, after[name])
		}
	}
	for key := range s.cache.docs {
		if strings.Contains(key, "stable.example.com") {
			t.Errorf("the old document %s is still kept", key)
		}
	}
	if r := get(t, h, url); r.StatusCode != http.StatusMovedPermanently || r.Header.Get("Location") != after["apis/stable.example.com/v1"] {
		t.Errorf("an old hash: %d %s", r.StatusCode, r.Header.Get("Location"))
	}
	if r := get(t, h, "/openapi/v3/apis/stable.example.com/v1", "If-None-Match", first.Header.Get("Etag")); r.StatusCode != 200 {
		t.Errorf("an old tag: %d", r.StatusCode)
	}
	r := get(t, h, "/openapi/v2", "If-None-Match", oldV2)
	if r.StatusCode != 200 || !bytes.Contains(readBody(t, r), []byte("com.example.stable.v1.Backup")) {
		t.Errorf("v2 does not show the change: %d", r.StatusCode)
	}

	groups = groups[1:]
	if _, ok := groupVersionURLs(t, h)["apis/stable.example.com/v1"]; ok {
		t.Error("the group is still in the index")
	}
	if r := get(t, h, "/openapi/v3/apis/stable.example.com/v1"); r.StatusCode != http.StatusNotFound {
		t.Errorf("a group that is gone: %d", r.StatusCode)
	}
}

func TestSchemasAreBuiltOnDemand(t *testing.T) {
	built := 0
	g := newGroup("1", newCustom("example.com", "v1", "CronTab"))
	custom := g.Custom
	g.Custom = func() []Custom { built++; return custom() }
	s := New(Options{Resources: []Resource{configMaps}, Groups: func() []Group { return []Group{g} }})
	h := handler(s)
	groupVersionURLs(t, h)
	get(t, h, "/openapi/v3/api/v1")
	get(t, h, "/openapi/v3/apis/example.com/v1", "If-None-Match", mustTag(t, s, "apis/example.com/v1"))
	if built != 0 {
		t.Errorf("custom resources were described %d times for documents that show none", built)
	}
	get(t, h, "/openapi/v3/apis/example.com/v1")
	get(t, h, "/openapi/v3/apis/example.com/v1")
	if built != 1 {
		t.Errorf("custom resources were described %d times for one document", built)
	}
}

func mustTag(t *testing.T, s *Service, name string) string {
	t.Helper()
	tag, ok := s.tag(name)
	if !ok {
		t.Fatalf("%s has no tag", name)
	}
	return tag
}

// TestCustomBesideBuiltIn checks that a custom resource in the group version of built-in ones is in their document,
// except one that has the name of a built-in resource.
func TestCustomBesideBuiltIn(t *testing.T) {
	jobs := Resource{Group: "batch.k8s.io", Version: "v1", Kind: "Job", Plural: "jobs", Verbs: []string{"delete"}}
	custom := newCustom("batch.k8s.io", "v1", "Extra")
	same := newCustom("batch.k8s.io", "v1", "Other")
	same.Plural = "jobs"
	groups := []Group{newGroup("1", custom, same)}
	s := New(Options{Resources: []Resource{jobs}, Groups: func() []Group { return groups }})
	h := handler(s)
	url := groupVersionURLs(t, h)["apis/batch.k8s.io/v1"]
	v3 := parse(t, readBody(t, get(t, h, url)))
	v2 := parse(t, readBody(t, get(t, h, "/openapi/v2")))
	if v3.Info.Title != "Kubernetes" {
		t.Errorf("the document is called %q", v3.Info.Title)
	}
	for _, paths := range []map[string]map[string]json.RawMessage{v2.Paths, v3.Paths} {
		for _, want := range []string{"/apis/batch.k8s.io/v1/jobs/{name}", "/apis/batch.k8s.io/v1/extras", "/apis/batch.k8s.io/v1/"} {
			if paths[want] == nil {
				t.Errorf("there is no path %s", want)
			}
		}
		if paths["/apis/batch.k8s.io/v1/namespaces/{namespace}/jobs"] != nil {
			t.Error("a custom resource has the name of a built-in one")
		}
	}
	groups = []Group{newGroup("2", custom)}
	if groupVersionURLs(t, h)["apis/batch.k8s.io/v1"] == url {
		t.Error("the hash does not show the change")
	}
}

// TestAggregatedServerReplacesBuiltIn checks that the document of an aggregated server replaces that of this server.
func TestAggregatedServerReplacesBuiltIn(t *testing.T) {
	jobs := Resource{Group: "batch.k8s.io", Version: "v1", Kind: "Job", Plural: "jobs", Verbs: []string{"delete"}}
	remote := Group{Group: "batch.k8s.io", Version: "v1", Tag: "a",
		Document: func() ([]byte, error) { return []byte(`{"openapi":"3.0.0"}`), nil }}
	for _, groups := range [][]Group{{remote, newGroup("1", newCustom("batch.k8s.io", "v1", "Extra"))},
		{newGroup("1", newCustom("batch.k8s.io", "v1", "Extra")), remote}} {
		h := handler(New(Options{Resources: []Resource{configMaps, jobs}, Groups: func() []Group { return groups }}))
		if raw := readBody(t, get(t, h, groupVersionURLs(t, h)["apis/batch.k8s.io/v1"])); string(raw) != `{"openapi":"3.0.0"}` {
			t.Errorf("v3 is %.100s", raw)
		}
		v2 := parse(t, readBody(t, get(t, h, "/openapi/v2")))
		for path := range v2.Paths {
			if strings.HasPrefix(path, "/apis/batch.k8s.io/v1/") {
				t.Errorf("v2 has the path %s", path)
			}
		}
	}
}

// TestCustomKindNamedLikeBuiltIn checks that custom kinds whose schemas would be named like built-in types do not replace
// them.
func TestCustomKindNamedLikeBuiltIn(t *testing.T) {
	evil := newCustom("meta.apis.pkg.apimachinery.k8s.io", "v1", "ObjectMeta")
	s := New(Options{Resources: []Resource{configMaps}, Groups: func() []Group { return []Group{newGroup("1", evil)} }})
	h := handler(s)
	v3 := parse(t, readBody(t, get(t, h, "/openapi/v3/apis/meta.apis.pkg.apimachinery.k8s.io/v1")))
	v2 := parse(t, readBody(t, get(t, h, "/openapi/v2")))
	for _, schemas := range []map[string]json.RawMessage{v3.Components.Schemas, v2.Definitions} {
		if raw := schemas[metaV1+"ObjectMeta"]; !bytes.Contains(raw, []byte("managedFields")) {
			t.Errorf("ObjectMeta is %s", raw)
		}
		if raw := schemas[metaV1+"ObjectMetaList"]; !bytes.Contains(raw, []byte(metaV1+`ObjectMeta_v2"`)) {
			t.Errorf("the list has the schema %s", raw)
		}
	}
}

// TestVerbsOfADescribedKind checks that a kind with a list of verbs has operations for these verbs only.
func TestVerbsOfADescribedKind(t *testing.T) {
	c := newCustom("example.com", "v1", "CronTab")
	c.Verbs = []string{"get", "list"}
	h := handler(New(Options{Resources: []Resource{configMaps}, Groups: func() []Group { return []Group{newGroup("1", c)} }}))
	var doc struct {
		Paths map[string]map[string]json.RawMessage
	}
	if err := json.Unmarshal(readBody(t, get(t, h, "/openapi/v3/apis/example.com/v1")), &doc); err != nil {
		t.Fatal(err)
	}
	if len(doc.Paths) == 0 {
		t.Error("it has no paths")
	}
	for path, operations := range doc.Paths {
		for method := range operations {
			if method != "get" && method != "parameters" {
				t.Errorf("%s has %s", path, method)
			}
		}
	}
}

// TestReferencesInDescriptions checks that a description which looks like a reference is not taken for one.
func TestReferencesInDescriptions(t *testing.T) {
	c := newCustom("example.com", "v1", "CronTab")
	c.Schema = func(Dialect) json.RawMessage {
		return json.RawMessage(`{"type":"object","description":"see \"#/components/schemas/none.v1.None\" and <b>"}`)
	}
	h := handler(New(Options{Resources: []Resource{configMaps}, Groups: func() []Group { return []Group{newGroup("1", c)} }}))
	for _, path := range []string{"/openapi/v2", "/openapi/v3/apis/example.com/v1"} {
		if r := get(t, h, path); r.StatusCode != 200 || !json.Valid(readBody(t, r)) {
			t.Errorf("%s: %d", path, r.StatusCode)
		}
	}
}

func TestCustomProtobuf(t *testing.T) {
	s := New(Options{Resources: []Resource{configMaps}, Groups: func() []Group {
		return []Group{newGroup("1", newCustom("example.com", "v1", "CronTab")), newGroup("1", newCustom("example.com", "v2", "CronTab"))}
	}})
	compareV2(t, s)
}

func TestHead(t *testing.T) {
	h := handler(New(Options{Resources: []Resource{configMaps}}))
	whole := get(t, h, "/openapi/v3/api/v1")
	n := len(readBody(t, whole))
	if whole.ContentLength != int64(n) {
		t.Errorf("the response has %d bytes, and the Content-Length %d", n, whole.ContentLength)
	}
}
