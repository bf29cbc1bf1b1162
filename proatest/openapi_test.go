package proatest_test

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

const cronTabDefinition = `
metadata: {name: crontabs.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {kind: CronTab, plural: crontabs}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {schedule: {type: string, description: When it runs.}}}}}}
`

// TestOpenAPIFollowsDefinitions reads both versions of OpenAPI while a definition is created, changed and deleted.
func TestOpenAPIFollowsDefinitions(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	h, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path string) string {
		r, err := h.Get(c.Config.Host + path)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		raw, err := io.ReadAll(r.Body)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s (%v)", path, r.StatusCode, raw, err)
		}
		return string(raw)
	}
	// url is the path of the document in the index; empty if it is not in the index.
	url := func() string {
		var index struct {
			Paths map[string]struct{ ServerRelativeURL string }
		}
		if err := json.Unmarshal([]byte(get("/openapi/v3")), &index); err != nil {
			t.Fatal(err)
		}
		return index.Paths["apis/stable.example.com/v1"].ServerRelativeURL
	}
	wait := func(what string, done func() bool) {
		t.Helper()
		for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: not within half a minute", what)
			}
		}
	}
	if strings.Contains(get("/openapi/v2"), "CronTab") {
		t.Error("v2 shows what is not there")
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := create(t, c, gr.CustomResourceDefinitions, d, cronTabDefinition); err != nil {
		t.Fatal(err)
	}
	wait("the definition is in the index", func() bool { return url() != "" })
	first := url()
	for _, path := range []string{first, "/openapi/v2"} {
		if doc := get(path); !strings.Contains(doc, `"com.example.stable.v1.CronTab"`) || !strings.Contains(doc, "When it runs.") {
			t.Errorf("%s does not show the definition", path)
		}
	}

	err = retry.RetryOnConflict(retry.DefaultRetry, func() error { // a controller may write the status
		stored, err := c.Client.Get(t.Context(), gr.CustomResourceDefinitions, "", d.Name, "")
		if err != nil {
			return err
		}
		d = stored.DeepCopyObject().(*apiextensionsv1.CustomResourceDefinition)
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["schedule"] = apiextensionsv1.JSONSchemaProps{
			Type: "string", Description: "Another text."}
		_, err = c.Client.Update(t.Context(), gr.CustomResourceDefinitions, d, "")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	wait("the change is in the index", func() bool { return url() != first })
	for _, path := range []string{url(), "/openapi/v2"} {
		if doc := get(path); !strings.Contains(doc, "Another text.") || strings.Contains(doc, "When it runs.") {
			t.Errorf("%s does not show the change", path)
		}
	}

	if err := c.Client.Delete(t.Context(), gr.CustomResourceDefinitions, "", d.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("the definition is gone from the index", func() bool { return url() == "" })
	if strings.Contains(get("/openapi/v2"), "CronTab") {
		t.Error("v2 has a deleted definition")
	}
}
