package proatest_test

import (
	"net/http"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"proa.dev/proatest"
)

// widgetDefinition is a definition whose schema has two fields.
const widgetDefinition = `{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"}, "spec": {
	"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
	"versions": [
		{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
			"size": {"type": "integer"}, "parts": {"type": "array", "items": {"type": "object", "properties": {"colour": {"type": "string", "default": "red"}}}}}}}}}},
		{"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
			"size": {"type": "integer"}, "parts": {"type": "array", "items": {"type": "object", "properties": {"colour": {"type": "string", "default": "red"}}}}}}}}}}
	]}}`

// TestWebhooksOfCustomResources checks that a webhook for one version of a custom resource sees writes to another one, and that
// what it adds is pruned and defaulted like an object of a client.
func TestWebhooksOfCustomResources(t *testing.T) {
	s := serveWebhooks(t)
	c := proatest.Start(t, proatest.Memory())
	ask := func(method, path, body string) (int, string) {
		t.Helper()
		code, text, _ := send(t, c.Config, method, path, body)
		return code, text
	}
	if code, text := ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgetDefinition); code != http.StatusCreated {
		t.Fatal(text)
	}
	hook := s.mutating("grow", "/grow", "widgets")
	hook.Webhooks[0].Rules[0].APIGroups = []string{"example.com"}
	hook.Webhooks[0].MatchPolicy = new(admissionv1.Equivalent)
	if _, err := c.Client.Create(t.Context(), registration("mutatingwebhookconfigurations"), hook); err != nil {
		t.Fatal(err)
	}
	const widget = `{"apiVersion": "example.com/v2", "kind": "Widget", "metadata": {"generateName": "w"}, "spec": {"size": 1}}`
	until(t, "the webhook is not called", func() bool {
		code, text := ask("POST", "/apis/example.com/v2/namespaces/default/widgets", widget)
		if code != http.StatusCreated || !s.hasSeen("/grow CREATE Widget") {
			return false
		}
		if !strings.Contains(text, `"spec":{"parts":[{"colour":"red"}],"size":3}`) ||
			!strings.Contains(text, `"apiVersion":"example.com/v2"`) {
			t.Errorf("the answer is %s", text)
		}
		return true
	})
	if s.hasSeen("/grow CREATE Widget v2") || !s.hasSeen("/grow CREATE Widget v1") {
		t.Errorf("seen %q, want the version of the rule", s.seen)
	}
	hook.Webhooks[0].ClientConfig = s.at("/mangle")
	hook.Webhooks[0].MatchPolicy = new(admissionv1.Exact)
	hook.Webhooks[0].Rules[0].APIVersions = []string{"v2"}
	hook.Name = "mangle"
	if _, err := c.Client.Create(t.Context(), registration("mutatingwebhookconfigurations"), hook); err != nil {
		t.Fatal(err)
	}
	until(t, "labels that are none are stored", func() bool {
		code, text := ask("POST", "/apis/example.com/v2/namespaces/default/widgets", widget)
		return code == http.StatusInternalServerError && strings.Contains(text, "cannot unmarshal")
	})
}
