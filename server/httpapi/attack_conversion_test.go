package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"proa.dev/proatest"
)

// TestUnresponsiveConversionHoldsItsObjectsOnly changes the storage version of a resource whose conversion webhook hangs.
// Garbage of other resources is still collected, and the other objects in namespaces are deleted.
func TestUnresponsiveConversionHoldsItsObjectsOnly(t *testing.T) {
	hook := newFaultyConverter(t)
	release := make(chan struct{})
	t.Cleanup(func() { close(release) }) // before the webhook is closed
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "hangs"}
	s.send("", "POST "+definitionsPath, fmt.Sprintf(convertedThings, hook.URL, caBundleOf(hook.Server)), "201")
	s.send("", "GET "+definitionsPath+"/things.convert.example.com", "", "established")
	const namespaces, maps = "/api/v1/namespaces", "/api/v1/namespaces/default/configmaps"
	for _, name := range []string{"full", "other"} {
		w.must(201, "POST", namespaces, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+name+`"}}`)
		w.must(201, "POST", namespaces+"/"+name+"/configmaps", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`)
	}
	w.must(201, "POST", "/apis/convert.example.com/v1/namespaces/full/things", `{"apiVersion":"convert.example.com/v1","kind":"Thing","metadata":{"name":"a"}}`)
	hang := func(http.ResponseWriter, *unstructured.Unstructured, *apiextensionsv1.ConversionReview) bool {
		<-release
		return true
	}
	hook.respond.Store(&hang)
	w.must(200, "PATCH", definitionsPath+"/things.convert.example.com",
		`[{"op":"replace","path":"/spec/versions/0/storage","value":false},{"op":"replace","path":"/spec/versions/1/storage","value":true}]`,
		"Content-Type: application/json-patch+json")
	owner := w.must(201, "POST", maps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"owner"}}`)
	w.must(201, "POST", maps, fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"garbage","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, fieldAt(owner, "metadata", "uid")))
	for _, path := range []string{namespaces + "/full", namespaces + "/other", maps + "/owner"} {
		w.must(200, "DELETE", path, "")
	}
	for _, path := range []string{maps + "/garbage", namespaces + "/full/configmaps/a", namespaces + "/other/configmaps/a"} {
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if code, _ := w.do("GET", path, ""); code == http.StatusNotFound {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s is still there", path)
			}
		}
	}
	w.must(200, "GET", namespaces+"/full", "") // it may have objects that nobody can read
}
