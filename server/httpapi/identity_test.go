package httpapi_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"

	"proa.dev/proatest"
)

// TestIdentityIsAssignedAfterMutation checks that a mutating webhook sees a new object without UID and creation time, whatever the
// client sends, and cannot set them.
func TestIdentityIsAssignedAfterMutation(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "born"}
	s.define("widgets", "Widget", "Namespaced", looseSchema)
	d := newTestWebhook(t)
	d.configure(w, "Mutating")
	seen := ""
	d.setResponse(func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
		seen = string(q.Object.Raw)
		a.Patch, a.PatchType = []byte(`[{"op":"add","path":"/metadata/uid","value":"mine"}]`), new(admissionv1.PatchTypeJSONPatch)
		return ""
	})
	body := strings.Replace(widget("new", ""), `"metadata":{`, `"metadata":{"uid":"given","creationTimestamp":"2020-01-01T00:00:00Z",`, 1)
	got := w.must(201, "POST", widgets, body)
	if strings.Contains(seen, `"uid"`) || strings.Contains(seen, "2020") || !strings.Contains(seen, `"name":"new"`) {
		t.Errorf("the webhook saw %s", seen)
	}
	if uid := show(got, "metadata.uid"); len(uid) != 38 || strings.Contains(show(got, "metadata.creationTimestamp"), "2020") {
		t.Errorf("the metadata is %s", show(got, "metadata"))
	}
}
