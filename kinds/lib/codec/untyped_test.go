package codec

import (
	"bytes"
	"encoding/json"
	"testing"

	utiljson "sigs.k8s.io/json"
)

// FuzzAppendUntyped compares with encoding/json.
func FuzzAppendUntyped(f *testing.F) {
	for _, text := range []string{
		`null`, `{"b":1,"a":[true,false,null,"x",-3,1.5,1e30],"":{}}`, `"a<b>&\u2028\"\\\n\u0000é\ud800"`, `[[],{},[null]]`,
		`18446744073709551615`, `{"a":{"b":{"c":[1,2,3]}}}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var value any
		if err := utiljson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value); err != nil {
			return
		}
		got, err := AppendUntyped(nil, value)
		if err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

func TestAppendUntypedRejectsUnknownTypes(t *testing.T) {
	if out, err := AppendUntyped(nil, map[string]any{"a": make(chan int)}); err == nil {
		t.Errorf("a channel is %s", out)
	}
}
