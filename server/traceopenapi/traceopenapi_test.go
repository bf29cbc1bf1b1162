package traceopenapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/nodereport"
	"proa.dev/kinds/tracekind"
	"proa.dev/kinds/whykind"
	"proa.dev/server/openapi"
	"proa.dev/trace"
)

// defs returns the descriptors of all kinds of the group, and one of another group.
func defs() []*kind.Def {
	gvk := schema.GroupVersionKind{Group: "x", Version: "v1", Kind: "Trace"}
	other := &kind.Def{Traits: kind.Traits{GroupVersionKind: gvk, Plural: "traces"}}
	return slices.Concat([]*kind.Def{nodereport.Kind(nil), other}, tracekind.All(nil), whykind.All(nil))
}

// node is a schema.
type node struct {
	Type, Description, Format string
	Properties                map[string]node
	Required                  []string
	Items                     *node
	AllOf                     []map[string]string
	Ref                       string                                  `json:"$ref"`
	Kinds                     []struct{ Group, Version, Kind string } `json:"x-kubernetes-group-version-kind"`
}

// each calls f with every field of a schema, by its path.
func (n *node) each(path string, f func(path string, n node)) {
	for name, p := range n.Properties {
		f(path+"."+name, p)
		p.each(path+"."+name, f)
	}
	if n.Items != nil {
		n.Items.each(path, f)
	}
}

// TestEveryFieldIsDescribed checks that all kinds of the group have a schema, that every field has a type and a text, and that no text is
// left of a field that does not exist any more.
func TestEveryFieldIsDescribed(t *testing.T) {
	customs := Group(defs()).Custom()
	if len(customs) != 5 {
		t.Fatalf("%d kinds are described", len(customs))
	}
	for _, c := range customs {
		for _, dialect := range []openapi.Dialect{openapi.V2, openapi.V3} {
			for _, raw := range []json.RawMessage{c.Schema(dialect), c.List(dialect, "an.object")} {
				var s node
				if err := json.Unmarshal(raw, &s); err != nil {
					t.Fatal(err)
				}
				if s.Description == "" || len(s.Kinds) != 1 || s.Kinds[0].Group != trace.Group || s.Properties["kind"].Type != "string" {
					t.Errorf("%s: %s", c.Kind, raw)
				}
				ref := s.Properties["metadata"]
				if isV2 := dialect == openapi.V2; (ref.Ref != "") != isV2 || (len(ref.AllOf) == 1) == isV2 {
					t.Errorf("%s: the metadata is %+v", c.Kind, ref)
				}
				s.each(c.Kind, func(path string, n node) {
					if n.Description == "" || n.Type == "" && !strings.HasSuffix(path, ".metadata") {
						t.Errorf("%s is described as %+v", path, n)
					}
				})
			}
		}
	}
	used := map[string]bool{}
	var look func(typ reflect.Type)
	look = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || !strings.HasPrefix(typ.PkgPath(), "proa.dev/") || used[typ.String()] {
			return
		}
		used[typ.String()] = true
		for f := range eachField(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			used[key(typ, name)] = true
			look(f.Type)
		}
	}
	for _, c := range customs {
		used[c.Kind] = true
		look(describedType(c.Plural))
	}
	for name := range descriptions() {
		if !used[name] {
			t.Errorf("there is no %s to describe", name)
		}
	}
}

// TestSchemaOfATrace checks the forms of fields: times, durations, lists, references, and an explanation inside of an explanation.
func TestSchemaOfATrace(t *testing.T) {
	schemas := map[string]node{}
	for _, c := range Group(defs()).Custom() {
		var s node
		if err := json.Unmarshal(c.Schema(openapi.V3), &s); err != nil {
			t.Fatal(err)
		}
		schemas[c.Kind] = s
	}
	got := schemas["Trace"].Properties
	span := got["spans"].Items
	for what, is := range map[string][2]string{
		"start":    {got["start"].Type + " " + got["start"].Format, "string date-time"},
		"took":     {got["took"].Type + " " + got["took"].Format, "integer int64"},
		"spans":    {got["spans"].Type + " of " + span.Type, "array of object"},
		"object":   {span.Properties["object"].Properties["name"].Type, "string"},
		"open":     {span.Properties["open"].Type, "boolean"},
		"required": {fmt.Sprint(span.Required), "[id name start took]"},
		"score":    {schemas["SchedulingAttempt"].Properties["nodes"].Items.Properties["score"].Type, "integer"},
		"through":  {schemas["Explanation"].Properties["through"].Type, "object"},
	} {
		if is[0] != is[1] {
			t.Errorf("%s is %s", what, is[0])
		}
	}
	if got["root"].Type != "" || got["stuckHop"].Type != "" || got["Trace"].Type != "" {
		t.Error("it shows fields that are not encoded")
	}
	before := Group(defs()).Tag
	changed := defs()
	changed[len(changed)-1].Verbs = []string{"get"}
	if before != Group(defs()).Tag || before == Group(changed).Tag {
		t.Error("the tag changes by itself, or not with the verbs")
	}
}
