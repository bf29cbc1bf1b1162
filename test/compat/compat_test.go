package main

import (
	"testing"

	"proa.dev/test/compat/answerdiff"
	"proa.dev/test/compat/compatcases"
)

func TestOrderOfCausesIsIgnored(t *testing.T) {
	status := func(body string) *compatcases.Answer {
		return &compatcases.Answer{Code: 422, Body: parsedBody(t, body)}
	}
	x := status(`{"kind":"Status","message":"bad: [a: no, b: no]","details":{"causes":[{"field":"a"},{"field":"b"}]}}`)
	y := status(`{"kind":"Status","message":"bad: [b: no, a: no]","details":{"causes":[{"field":"b"},{"field":"a"}]}}`)
	if class, d := compareAnswers(answerdiff.NewMasker(""), answerdiff.NewMasker(""), x, y); class != "order" || len(d) == 0 {
		t.Errorf("class %q with %d differences, want order", class, len(d))
	}
}

func TestWebhookAnswers(t *testing.T) {
	review := parsedBody(t, `{"apiVersion":"v","kind":"K","request":{"uid":"u","object":{"a":[1]},"userInfo":{"username":"proa-admin"}}}`).(map[string]any)
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
		if got := string(answerdiff.Encode(c.hook.answer(review))); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func parsedBody(t *testing.T, text string) any {
	t.Helper()
	v, err := answerdiff.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return v
}
