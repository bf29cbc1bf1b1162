package compatcases

import (
	"reflect"
	"regexp"
	"testing"

	"proa.dev/test/compat/answerdiff"
)

func TestMerge(t *testing.T) {
	got := Merge(parsed(t, `{"a":{"b":1,"c":2},"d":[1]}`), parsed(t, `{"a":{"b":null,"x":3},"d":[2]}`))
	if want := parsed(t, `{"a":{"c":2,"x":3},"d":[2]}`); !reflect.DeepEqual(got, want) {
		t.Errorf("got %s, want %s", answerdiff.Encode(got), answerdiff.Encode(want))
	}
}

func TestScriptSteps(t *testing.T) {
	c := &corpus{words: map[string]string{"$HOOK": "https://hooks"}}
	s, err := readScript(c, []byte(`
name: a/b
steps:
- {name: one, do: "POST /x/$NAMESPACE?dryRun=All", at: spec.list.0.a, body: {spec: {list: [{a: 1, b: $HOOK}]}}, variants: [{name: two, body: 2}, {name: raw, text: "{"}]}
- {name: merged, do: PUT /x, from: kept, body: {spec: {a: null}}}`))
	if err != nil {
		t.Fatal(err)
	}
	test, err := s.testCase()
	if err != nil {
		t.Fatal(err)
	}
	kept := parsed(t, `{"metadata":{"name":"n","managedFields":[]},"spec":{"a":1,"b":2}}`).(map[string]any)
	var got []string
	for _, step := range test.Steps {
		call := step.Build(&State{Objects: map[string]map[string]any{"kept": kept}})
		got = append(got, step.Name+": "+call.String()+" "+string(call.Body))
	}
	want := []string{
		`one: two: POST /x/compat-a-b?dryRun=All {"spec":{"list":[{"a":2,"b":"https://hooks"}]}}`,
		`one: raw: POST /x/compat-a-b?dryRun=All {`,
		`merged: PUT /x {"metadata":{"name":"n"},"spec":{"b":2}}`,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
}

func TestComparedPaths(t *testing.T) {
	doc := parsed(t, `{"kind":"x","metadata":{"a":1},"groups":[{"name":"a.com"},{"name":"b.com"}],"components":{"schemas":{"com.a":1,"com.b":2}}}`)
	got := KeepOnly(doc, regexp.MustCompile(`a\.com|com\.a`))
	if want := parsed(t, `{"kind":"x","groups":[{"name":"a.com"}],"components":{"schemas":{"com.a":1}}}`); !reflect.DeepEqual(got, want) {
		t.Errorf("got %s, want %s", answerdiff.Encode(got), answerdiff.Encode(want))
	}
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	v, err := answerdiff.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
