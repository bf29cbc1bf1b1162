package answerdiff

import (
	"reflect"
	"testing"
)

func parsed(t *testing.T, text string) any {
	t.Helper()
	v, err := ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestMaskHidesVariableFields(t *testing.T) {
	a := parsed(t, `{"metadata":{"name":"gen-abcde","generateName":"gen-","uid":"5c0f5a62-57b2-4f2c-9d0e-0a2b5c6d7e8f","resourceVersion":"12",
		"managedFields":[{"manager":"b"},{"manager":"a"}]},"spec":{"clusterIP":"10.96.3.4","ports":[{"nodePort":30001,"targetPort":6443}]}}`)
	b := parsed(t, `{"metadata":{"name":"gen-xyzzy","generateName":"gen-","uid":"5c0f5a62-57b2-4f2c-9d0e-0a2b5c6d7e80","resourceVersion":"99",
		"managedFields":[{"manager":"a"},{"manager":"b"}]},"spec":{"clusterIP":"10.96.9.9","ports":[{"nodePort":30002,"targetPort":7443}]}}`)
	if d := Compare("", NewMasker("6443").Value(a), NewMasker("7443").Value(b)); len(d) > 0 {
		t.Errorf("masked values differ: %v", d)
	}
}

func TestMaskKeepsOtherFields(t *testing.T) {
	m := NewMasker("")
	for _, pair := range [][2]string{
		{`{"metadata":{"resourceVersion":"0"}}`, `{"metadata":{"resourceVersion":"5"}}`},
		{`{"uid":"uidValue"}`, `{"uid":"other"}`},
		{`{"t":"2004-01-01T01:01:01Z"}`, `{"t":"2005-01-01T01:01:01Z"}`},
		{`{"nodePort":0}`, `{"nodePort":30000}`},
		{`{"a":1}`, `{"a":"1"}`},
		{`{"a":null}`, `{}`},
	} {
		if d := Compare("", m.Value(parsed(t, pair[0])), m.Value(parsed(t, pair[1]))); len(d) == 0 {
			t.Errorf("%s and %s look the same", pair[0], pair[1])
		}
	}
}

func TestGraft(t *testing.T) {
	full := parsed(t, `{"spec":{"containers":[{"name":"full","ports":[{"port":1}]}]}}`)
	into := parsed(t, `{"spec":{"containers":[{"name":"c"}]}}`).(map[string]any)
	Graft(into, full, []any{"spec", "containers", 0, "ports"}, nil)
	want := parsed(t, `{"spec":{"containers":[{"name":"c","ports":[{"port":1}]}]}}`)
	if !reflect.DeepEqual(any(into), want) {
		t.Errorf("got %s, want %s", Encode(into), Encode(want))
	}
	if got := len(Paths(full, 12)); got != 7 {
		t.Errorf("%d paths, want 7", got)
	}
}
