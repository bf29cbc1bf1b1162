package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"proa.dev/proatest"
)

// TestLongListsAreBounded sends bodies whose cost grows with the square of their lists, or with the product of the items
// and what each of them gets.
func TestLongListsAreBounded(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	list := func(n int, format string) string {
		all := make([]string, n)
		for i := range all {
			if all[i] = format; strings.Contains(format, "%") {
				all[i] = fmt.Sprintf(format, i)
			}
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	const pods, roles = "/api/v1/namespaces/default/pods", "/apis/rbac.authorization.k8s.io/v1/clusterroles"
	const texts = "/apis/attack.example.com/v1/namespaces/default/texts"
	w.must(201, "POST", pods, podWith("p", `"1"`))
	w.must(201, "POST", roles, `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"r"},"rules":[{"apiGroups":["x"],"resources":["y"],"verbs":`+list(40_000, `"x"`)+`}]}`)
	properties := make([]string, 50)
	for i := range properties {
		properties[i] = fmt.Sprintf(`"p%d":{"type":"string","default":"%s"}`, i, strings.Repeat("x", 150))
	}
	s := &customScript{w: w, file: "lists"}
	s.define("texts", "Text", "Namespaced", `{"type":"object","properties":{"items":{"type":"array","items":{"type":"object","properties":{`+strings.Join(properties, ",")+`}}}}}`)
	const strategic, jsonPatch = "Content-Type: application/strategic-merge-patch+json", "Content-Type: application/json-patch+json"
	for _, test := range []struct{ what, method, path, body, media, want string }{
		{"a strategic merge", "PATCH", pods + "/p", `{"spec":{"containers":` + list(9000, `{"name":"c%d"}`) + `}}`, strategic, "too many items to merge"},
		{"an order of elements", "PATCH", pods + "/p", `{"metadata":{"$setElementOrder/finalizers":` + list(9000, `"c%d"`) + `}}`, strategic, "too many items to merge"},
		{"insertions", "PATCH", roles + "/r", list(2000, `{"op":"add","path":"/rules/0/verbs/0","value":"y"}`), jsonPatch, "too many operations on list items"},
		{"moves", "PATCH", roles + "/r", list(1000, `{"op":"move","from":"/rules/0/verbs/0","path":"/rules/0/verbs/-"}`), jsonPatch, "too many operations on list items"},
		{"defaults", "POST", texts, `{"apiVersion":"attack.example.com/v1","kind":"Text","metadata":{"name":"x"},"items":` + list(2000, "{}") + `}`, "", "the defaults of the object would take more than 16 MiB"},
		{"an apply", "PATCH", roles + "/a?fieldManager=me", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"a","finalizers":` + list(17_000, `"example.com/%d"`) + `}}`, "Content-Type: application/apply-patch+yaml", "too many items in a list"},
	} {
		code, text := w.do(test.method, test.path, test.body, mediaHeaders(test.media)...)
		if code != 413 || !strings.Contains(text, test.want) {
			t.Errorf("%s: %d %.300s", test.what, code, text)
		}
	}
	w.must(200, "PATCH", roles+"/r", list(100, `{"op":"remove","path":"/rules/0/verbs/0"}`), jsonPatch)
	w.must(201, "POST", texts, `{"apiVersion":"attack.example.com/v1","kind":"Text","metadata":{"name":"x"},"items":`+list(100, "{}")+`}`)
}
