package kindtest

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"proa.dev/kinds/kind"
)

// oracle is an upstream server whose answers are the expected ones. Its address includes the token:
// https://:token@host:port.
type oracle struct{ address string }

type reply struct {
	status   int
	body     []byte
	warnings []string
}

func (o oracle) do(t *testing.T, method, path string, body []byte, accept string) reply {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, o.address+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token, ok := request.URL.User.Password(); ok {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	request.URL.User = nil
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", accept)
	// A test server has a self-signed certificate.
	client := &http.Client{Timeout: time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	r := reply{status: response.StatusCode, body: text}
	for _, w := range response.Header.Values("Warning") {
		if quoted, ok := strings.CutPrefix(w, "299 - "); ok {
			var warning string
			if json.Unmarshal([]byte(quoted), &warning) == nil {
				r.warnings = append(r.warnings, warning)
			}
		}
	}
	return r
}

func (o oracle) answer(t *testing.T, defs []*kind.Def, c *Case) string {
	t.Helper()
	const plain = "application/json"
	d, obj := decode(t, defs, c.Object)
	collection := "/apis/" + d.Group + "/" + d.Version
	if d.Group == "" {
		collection = "/api/" + d.Version
	}
	if d.Scope == kind.Namespaced {
		collection += "/namespaces/" + obj.GetNamespace()
	}
	collection += "/" + d.Plural
	path := collection + "/" + obj.GetName()
	remove := func() { o.do(t, "DELETE", path, []byte(`{"propagationPolicy":"Background"}`), plain) }
	remove()
	defer remove()
	body, err := yaml.YAMLToJSON([]byte(c.Object))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case c.Verb == "create":
		return text(o.do(t, "POST", collection, body, plain))
	case c.Verb == "table":
		o.do(t, "POST", collection, body, plain)
		r := o.do(t, "GET", path, nil, "application/json;as=Table;v=v1;g=meta.k8s.io")
		var table metav1.Table
		if err := json.Unmarshal(r.body, &table); err != nil || len(table.Rows) != 1 {
			t.Fatalf("%s: %s", c.Title, r.body)
		}
		return mask(tableText(table.ColumnDefinitions, table.Rows[0].Cells))
	}
	first, err := yaml.YAMLToJSON([]byte(c.Stored))
	if err != nil {
		t.Fatal(err)
	}
	created := o.do(t, "POST", collection, first, plain)
	if created.status >= 300 {
		t.Fatalf("%s: stored object: %s", c.Title, created.body)
	}
	if hasStatus(c.Stored) {
		if created = o.do(t, "PUT", path+"/status", first, plain); created.status >= 300 {
			t.Fatalf("%s: stored status: %s", c.Title, created.body)
		}
	}
	var meta struct{ Metadata metav1.ObjectMeta }
	if err := json.Unmarshal(created.body, &meta); err != nil {
		t.Fatal(err)
	}
	var changed map[string]any
	if err := json.Unmarshal(body, &changed); err != nil {
		t.Fatal(err)
	}
	changed["metadata"].(map[string]any)["resourceVersion"] = meta.Metadata.ResourceVersion
	if body, err = json.Marshal(changed); err != nil {
		t.Fatal(err)
	}
	body = []byte(strings.ReplaceAll(string(body), testUID, string(meta.Metadata.UID)))
	if c.Verb != "update" {
		path := path + "/" + c.Verb
		return text(o.do(t, "PUT", path, body, plain))
	}
	return text(o.do(t, "PUT", path, body, plain))
}

func text(r reply) string {
	var b strings.Builder
	var status metav1.Status
	if r.status >= 300 {
		if err := json.Unmarshal(r.body, &status); err != nil || status.Details == nil || len(status.Details.Causes) == 0 {
			return fmt.Sprintf("%d %s\n", r.status, r.body)
		}
		for _, c := range status.Details.Causes {
			fmt.Fprintf(&b, "%s %s: %s\n", c.Type, c.Field, c.Message)
		}
		return mask(b.String())
	}
	for _, w := range r.warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	b.WriteString(formatStored(r.body))
	return mask(b.String())
}
