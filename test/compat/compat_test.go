package main

import (
	"reflect"
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
