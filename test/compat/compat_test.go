package main

import (
	"reflect"
	"regexp"
	"testing"
)

func parsed(t *testing.T, text string) any {
	t.Helper()
	v, err := parseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMaskHidesWhatMustDiffer(t *testing.T) {
	a := parsed(t, `{"metadata":{"name":"gen-abcde","generateName":"gen-","uid":"5c0f5a62-57b2-4f2c-9d0e-0a2b5c6d7e8f","resourceVersion":"12",
		"managedFields":[{"manager":"b"},{"manager":"a"}]},"spec":{"clusterIP":"10.96.3.4","ports":[{"nodePort":30001,"targetPort":6443}]}}`)
	b := parsed(t, `{"metadata":{"name":"gen-xyzzy","generateName":"gen-","uid":"5c0f5a62-57b2-4f2c-9d0e-0a2b5c6d7e80","resourceVersion":"99",
		"managedFields":[{"manager":"a"},{"manager":"b"}]},"spec":{"clusterIP":"10.96.9.9","ports":[{"nodePort":30002,"targetPort":7443}]}}`)
	if d := compare("", newMasker("6443").value(a), newMasker("7443").value(b)); len(d) > 0 {
		t.Errorf("masked values differ: %v", d)
	}
}

func TestMaskKeepsWhatMatters(t *testing.T) {
	m := newMasker("")
	for _, pair := range [][2]string{
		{`{"metadata":{"resourceVersion":"0"}}`, `{"metadata":{"resourceVersion":"5"}}`},
		{`{"uid":"uidValue"}`, `{"uid":"other"}`},
		{`{"t":"2004-01-01T01:01:01Z"}`, `{"t":"2005-01-01T01:01:01Z"}`},
		{`{"nodePort":0}`, `{"nodePort":30000}`},
		{`{"a":1}`, `{"a":"1"}`},
		{`{"a":null}`, `{}`},
	} {
		if d := compare("", m.value(parsed(t, pair[0])), m.value(parsed(t, pair[1]))); len(d) == 0 {
			t.Errorf("%s and %s look the same", pair[0], pair[1])
		}
	}
}

func TestCausesInAnotherOrder(t *testing.T) {
	status := func(body string) *answer { return &answer{Code: 422, Body: parsed(t, body)} }
	x := status(`{"kind":"Status","message":"bad: [a: no, b: no]","details":{"causes":[{"field":"a"},{"field":"b"}]}}`)
	y := status(`{"kind":"Status","message":"bad: [b: no, a: no]","details":{"causes":[{"field":"b"},{"field":"a"}]}}`)
	if class, d := compareAnswers(newMasker(""), newMasker(""), x, y); class != "order" || len(d) == 0 {
		t.Errorf("class %q with %d differences, want order", class, len(d))
	}
}

func TestGraft(t *testing.T) {
	full := parsed(t, `{"spec":{"containers":[{"name":"full","ports":[{"port":1}]}]}}`)
	into := parsed(t, `{"spec":{"containers":[{"name":"c"}]}}`).(map[string]any)
	graft(into, full, []any{"spec", "containers", 0, "ports"}, nil)
	want := parsed(t, `{"spec":{"containers":[{"name":"c","ports":[{"port":1}]}]}}`)
	if !reflect.DeepEqual(any(into), want) {
		t.Errorf("got %s, want %s", encode(into), encode(want))
	}
	if got := len(paths(full, 12)); got != 7 {
		t.Errorf("%d paths, want 7", got)
	}
}

func TestMerge(t *testing.T) {
	got := merge(parsed(t, `{"a":{"b":1,"c":2},"d":[1]}`), parsed(t, `{"a":{"b":null,"x":3},"d":[2]}`))
	if want := parsed(t, `{"a":{"c":2,"x":3},"d":[2]}`); !reflect.DeepEqual(got, want) {
		t.Errorf("got %s, want %s", encode(got), encode(want))
	}
}

func TestScriptsBecomeSteps(t *testing.T) {
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
	for _, step := range test.steps {
		call := step.build(&state{objects: map[string]map[string]any{"kept": kept}})
		got = append(got, step.name+": "+call.String()+" "+string(call.body))
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

func TestOnlyWhatIsNamedIsCompared(t *testing.T) {
	doc := parsed(t, `{"kind":"x","metadata":{"a":1},"groups":[{"name":"a.com"},{"name":"b.com"}],"components":{"schemas":{"com.a":1,"com.b":2}}}`)
	got := keepOnly(doc, regexp.MustCompile(`a\.com|com\.a`))
	if want := parsed(t, `{"kind":"x","groups":[{"name":"a.com"}],"components":{"schemas":{"com.a":1}}}`); !reflect.DeepEqual(got, want) {
		t.Errorf("got %s, want %s", encode(got), encode(want))
	}
}

func TestHooksAnswer(t *testing.T) {
	review := parsed(t, `{"apiVersion":"v","kind":"K","request":{"uid":"u","object":{"a":[1]},"userInfo":{"username":"proa-admin"}}}`).(map[string]any)
	for _, c := range []struct {
		name string
		hook hook
		want string
	}{
		{"allows", hook{Response: map[string]any{"allowed": true}}, `{"apiVersion":"v","kind":"K","response":{"allowed":true,"uid":"u"}}`},
		{"leaves out", hook{Review: map[string]any{"response": nil, "kind": "X"}}, `{"apiVersion":"v","kind":"X"}`},
		{"patches", hook{Patch: []any{}}, `{"apiVersion":"v","kind":"K","response":{"patch":"W10=","patchType":"JSONPatch","uid":"u"}}`},
		{"echoes", hook{Echo: true}, `{"apiVersion":"v","kind":"K","response":{"allowed":false,"status":{"code":400,"details":{"causes":[` +
			`{"field":"apiVersion","message":"\"v\""},{"field":"kind","message":"\"K\""},{"field":"request.object.a[0]","message":"1"},` +
			`{"field":"request.uid","message":"\u003cset\u003e"},{"field":"request.userInfo.username","message":"\"the-admin\""}]},"message":"told"},"uid":"u"}}`},
	} {
		if got := string(encode(c.hook.answer(review))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}
