package httpapi_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/rest"

	"proa.dev/proatest"
)

// testWebhook is an admission webhook whose response is set by the test.
type testWebhook struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) (raw string)
	calls  int
}

func newTestWebhook(t *testing.T) *testWebhook {
	d := &testWebhook{}
	d.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.calls++
		if raw := d.answer(review.Request, a); raw != "" {
			http.Error(w, raw, http.StatusInternalServerError)
			return
		}
		review.Request, review.Response = nil, a
		_ = json.NewEncoder(w).Encode(&review)
	}))
	t.Cleanup(d.Close)
	return d
}

// setResponse sets the function that fills in responses, and resets the number of calls. If the function returns a text, that
// is sent with the code 500 instead.
func (d *testWebhook) setResponse(f func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer, d.calls = f, 0
}

// respondWithPatch makes the webhook respond with a JSON patch.
func (d *testWebhook) respondWithPatch(text string) {
	d.setResponse(func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
		a.Patch, a.PatchType = []byte(text), new(admissionv1.PatchTypeJSONPatch)
		return ""
	})
}

// configure registers the webhook for widgets, and waits until it is called.
func (d *testWebhook) configure(w *httpClient, sort string) {
	w.Helper()
	d.setResponse(func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
		a.Allowed = false
		return ""
	})
	w.must(201, "POST", "/apis/admissionregistration.k8s.io/v1/"+strings.ToLower(sort)+"webhookconfigurations", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1",
"kind":"%sWebhookConfiguration","metadata":{"name":"decider"},"webhooks":[{"name":"decider.example.com","sideEffects":"None","admissionReviewVersions":["v1"],
"clientConfig":{"url":%q,"caBundle":%q},"rules":[{"operations":["*"],"apiGroups":["attack.example.com"],"apiVersions":["*"],"resources":["*/*"]}]}]}`, sort, d.URL, caBundleOf(d.Server)))
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if code, _ := w.do("POST", widgets+"?dryRun=All", widget("probe", "")); code == http.StatusBadRequest {
			return
		}
		if time.Now().After(deadline) {
			w.Fatal("the webhook is not asked")
		}
	}
}

const widgets = "/apis/attack.example.com/v1/namespaces/default/widgets"

func widget(name, spec string) string {
	return `{"apiVersion":"attack.example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"},"spec":{"text":"0123456789"` + spec + `}}`
}

// doubling returns a JSON patch that copies an object into itself again and again: 60 operations would make exabytes.
// format is the text of one operation.
func doubling(format string) string {
	var ops []string
	for i := range 60 {
		ops = append(ops, fmt.Sprintf(format, i))
	}
	return "[" + strings.Join(ops, ",") + "]"
}

// TestMutationsAreBounded checks that a webhook or policy cannot make an object arbitrarily large, or another object of it.
func TestMutationsAreBounded(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "mutations"}
	s.define("widgets", "Widget", "Namespaced", looseSchema)
	d := newTestWebhook(t)
	d.configure(w, "Mutating")
	d.respondWithPatch(`[]`)
	w.must(201, "POST", widgets, widget("stored", ""))
	uid := show(w.must(200, "GET", widgets+"/stored", ""), "metadata.uid")
	for _, test := range []struct{ what, patch, want string }{
		{"doubles", doubling(`{"op":"copy","from":"/spec","path":"/spec/more%d"}`), "Unable to complete the copy"},
		{"grows", `[{"op":"add","path":"/spec/more","value":"` + strings.Repeat("x", 2<<20) + `"}]`, "too large"},
		{"inserts", `[{"op":"add","path":"/spec/l","value":[]}` + strings.Repeat(`,{"op":"add","path":"/spec/l/0","value":1}`, 9000) + `]`,
			"too many operations on list items"},
		{"another kind", `[{"op":"replace","path":"/kind","value":"Other"}]`, "makes a attack.example.com/v1, Kind=Other"},
		{"another version", `[{"op":"replace","path":"/apiVersion","value":"attack.example.com/v2"}]`,
			"makes a attack.example.com/v2, Kind=Widget"},
		{"another name", `[{"op":"replace","path":"/metadata/name","value":"admin"}]`, "does not match the name on the URL"},
		{"another namespace", `[{"op":"replace","path":"/metadata/namespace","value":"kube-system"}]`,
			"the namespace of the provided object does not match the namespace sent on the request"},
		{"another UID", `[{"op":"replace","path":"/metadata/uid","value":"mine"}]`,
			"metadata.uid: Invalid value: \\\"mine\\\": field is immutable"},
		{"a deletion timestamp", `[{"op":"add","path":"/metadata/deletionTimestamp","value":"2020-01-01T00:00:00Z"}]`,
			"metadata.deletionTimestamp: Invalid value"},
		{"has no metadata", `[{"op":"remove","path":"/metadata"}]`, "name"},
		{"is no object", `[{"op":"replace","path":"","value":[1]}]`, ""},
	} {
		d.respondWithPatch(test.patch)
		code, text := w.do("PATCH", widgets+"/stored", `{"spec":{"n":1}}`, "Content-Type: application/merge-patch+json")
		if code < 400 || !strings.Contains(text, test.want) {
			t.Errorf("a patch that %s: %d %.300s, want %s", test.what, code, text, test.want)
		}
	}
	d.respondWithPatch(`[{"op":"replace","path":"/metadata/creationTimestamp","value":"2020-01-01T00:00:00Z"}]`)
	got := w.must(200, "PATCH", widgets+"/stored", `{"spec":{"n":2}}`, "Content-Type: application/merge-patch+json")
	if show(got, "metadata.uid") != uid || strings.Contains(show(got, "metadata.creationTimestamp"), "2020") {
		t.Errorf("the metadata is %s", show(got, "metadata"))
	}
	d.respondWithPatch(`[]`)
	// The same by an expression.
	policy, err := json.Marshal(doubling(`JSONPatch{op: "copy", from: "/spec", path: "/spec/more%d"}`))
	if err != nil {
		t.Fatal(err)
	}
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	w.must(201, "POST", registration+"mutatingadmissionpolicies", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicy","metadata":{"name":"double"},"spec":{
"failurePolicy":"Fail","reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"operations":["*"],"apiGroups":["attack.example.com"],"apiVersions":["*"],"resources":["widgets"]}]},
"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":`+string(policy)+`}}]}}`)
	w.must(201, "POST", registration+"mutatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"MutatingAdmissionPolicyBinding","metadata":{"name":"double"},"spec":{"policyName":"double"}}`)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		code, text := w.do("PATCH", widgets+"/stored", `{"spec":{"n":3}}`, "Content-Type: application/merge-patch+json")
		if code >= 400 && strings.Contains(text, "Unable to complete the copy") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a policy that doubles: %d %.300s", code, text)
		}
	}
}

// TestWebhooksSeeStoredObject checks that the old custom object that a webhook sees is the stored one, for an update, a patch, an
// apply, the status and a deletion.
func TestWebhooksSeeStoredObject(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "old"}
	s.send("", "POST "+definitionsPath,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.attack.example.com"},"spec":{
"group":"attack.example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, "201")
	s.send("", "GET "+definitionsPath+"/widgets.attack.example.com", "", "established")
	d := newTestWebhook(t)
	d.configure(w, "Validating")
	var old string
	d.setResponse(func(q *admissionv1.AdmissionRequest, _ *admissionv1.AdmissionResponse) string {
		old = string(q.Operation) + " " + q.SubResource + " " + string(q.OldObject.Raw)
		return ""
	})
	forged := `{"apiVersion":"attack.example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"role":"forged"}},"spec":{"role":"forged"},"oldObject":{"spec":{"role":"forged"}}}`
	stored := w.must(201, "POST", widgets, `{"apiVersion":"attack.example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"role":"stored"}},"spec":{"role":"stored"}}`)
	version := show(stored, "metadata.resourceVersion")
	for _, test := range []struct{ method, path, body, contentType, want string }{
		{"PUT", "?dryRun=All", strings.Replace(forged, `"name":"w"`, `"name":"w","resourceVersion":`+version, 1), "application/json",
			"UPDATE  "},
		{"PATCH", "?dryRun=All", `{"metadata":{"labels":{"role":"forged"}},"spec":{"role":"forged"}}`, "application/merge-patch+json",
			"UPDATE  "},
		{"PATCH", "?dryRun=All&fieldManager=f&force=true", forged, "application/apply-patch+yaml", "UPDATE  "},
		{"PATCH", "/status?dryRun=All", `{"status":{"role":"forged"},"spec":{"role":"forged"}}`, "application/merge-patch+json",
			"UPDATE status "},
		{"DELETE", "?dryRun=All", "", "application/json", "DELETE  "},
	} {
		old = ""
		code, text := w.do(test.method, widgets+"/w"+test.path, test.body, "Content-Type: "+test.contentType)
		d.mu.Lock()
		if code != 200 || !strings.HasPrefix(old, test.want) || !strings.Contains(old, `"role":"stored"`) ||
			strings.Contains(old, "forged") {
			t.Errorf("%s %s: %d %.200s; shown as old: %s", test.method, test.path, code, text, old)
		}
		d.mu.Unlock()
	}
}

// TestNodesCannotUseExtensions checks that nodes can neither read nor write custom objects, webhook configurations and the like.
func TestNodesCannotUseExtensions(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	w := newHTTPClient(t, c)
	(&customScript{w: w, file: "nodes"}).define("widgets", "Widget", "Namespaced", looseSchema)
	w.must(201, "POST", widgets, widget("stored", ""))
	node := newHTTPClient(t, c, impersonate("system:node:n1", "system:nodes", "system:authenticated"))
	for _, path := range []string{
		widgets, definitionsPath, "/apis/apiregistration.k8s.io/v1/apiservices", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
		"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
		"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
	} {
		node.status(403, "GET", path, "")
		node.status(403, "GET", path+"?watch=1", "")
		node.status(403, "POST", path, `{"metadata":{"name":"x"}}`)
		node.status(403, "DELETE", path+"/x", "")
		node.status(403, "PATCH", path+"/x", `{"metadata":{"ownerReferences":[]}}`, "Content-Type: application/merge-patch+json")
	}
}

// TestDeletedDefinitionsCallNoWebhooks checks that when the objects of a deleted definition are deleted, webhooks and policies are not
// called. For all other deletions they are.
func TestDeletedDefinitionsCallNoWebhooks(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "cleanup"}
	s.define("widgets", "Widget", "Namespaced", looseSchema)
	d := newTestWebhook(t)
	d.configure(w, "Validating")
	d.setResponse(func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
		a.Allowed = q.Operation != admissionv1.Delete
		return ""
	})
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	w.must(201, "POST", registration+"validatingadmissionpolicies", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"keep"},"spec":{
"failurePolicy":"Fail","matchConstraints":{"resourceRules":[{"operations":["DELETE"],"apiGroups":["attack.example.com"],"apiVersions":["*"],"resources":["*"]}]},
"validations":[{"expression":"false","message":"kept by policy"}]}}`)
	w.must(201, "POST", registration+"validatingadmissionpolicybindings", `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicyBinding","metadata":{"name":"keep"},"spec":{"policyName":"keep","validationActions":["Deny"]}}`)
	w.must(201, "POST", widgets, widget("held", ""))
	w.must(200, "PATCH", widgets+"/held", `{"metadata":{"finalizers":["example.com/held"]}}`, "Content-Type: application/merge-patch+json")
	w.must(201, "POST", widgets, widget("free", ""))
	if code, text := w.do("DELETE", widgets+"/free", ""); code < 400 {
		t.Errorf("a user deletes: %d %s", code, text)
	}
	w.must(200, "DELETE", definitionsPath+"/widgets.attack.example.com", "")
	s.send("", "GET "+widgets+"/free", "", "until code = 404")
	// The other object waits for its finalizer, and no user may delete it meanwhile.
	s.send("", "GET "+widgets+"/held", "", "until metadata.deletionGracePeriodSeconds = 0")
	w.must(200, "PATCH", widgets+"/held", `{"metadata":{"finalizers":null}}`, "Content-Type: application/merge-patch+json")
	s.send("", "GET "+definitionsPath+"/widgets.attack.example.com", "", "until code = 404")
}

// syncBuffer is a buffer for a log, safe for concurrent use.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// uidOfReview returns the UID of the request in a review.
func uidOfReview(review []byte) string {
	var r struct{ Request struct{ UID string } }
	_ = json.Unmarshal(review, &r)
	return r.Request.UID
}

// TestExtensionsLogNoSecrets checks that even at the debug level, the log has neither custom objects, nor what webhooks answer
// about them, nor credentials of clients.
func TestExtensionsLogNoSecrets(t *testing.T) {
	const secret = "s3cr3t-value"
	var log syncBuffer
	c, err := proatest.Launch(t.Context(), slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 4})),
		proatest.Memory())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	w := newHTTPClient(t, c)
	var reason atomic.Value
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if reason, _ := reason.Load().(string); reason != "" {
			_, _ = fmt.Fprintf(w, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{%s}}`,
				strings.ReplaceAll(reason, "UID", uidOfReview(body)))
			return
		}
		http.Error(w, string(body)+secret, http.StatusInternalServerError)
	}))
	t.Cleanup(hook.Close)
	s := &customScript{w: w, file: "log"}
	s.send("", "POST "+definitionsPath, fmt.Sprintf(convertedThings, hook.URL, caBundleOf(hook)), "201")
	s.send("", "GET "+definitionsPath+"/things.convert.example.com", "", "established")
	s.define("widgets", "Widget", "Namespaced", looseSchema)
	const v1, v2 = "/apis/convert.example.com/v1/namespaces/default/things", "/apis/convert.example.com/v2/namespaces/default/things"
	w.must(201, "POST", v1, `{"apiVersion":"convert.example.com/v1","kind":"Thing","metadata":{"name":"a","annotations":{"a":"`+secret+`"}},"spec":{"size":3}}`)
	w.status(500, "GET", v2+"/a", "")
	w.status(500, "GET", v2, "")
	for _, answer := range []string{
		`"uid":"UID","result":{"status":"Failure","message":"` + secret + `"}`, `"uid":"UID","result":{"status":"` + secret + `"}`,
		`"uid":"` + secret + `"`,
		`"uid":"UID","result":{"status":"Success"},"convertedObjects":[{"apiVersion":"` + secret + `","kind":"` + secret + `","metadata":{"name":"` + secret + `"}}]`,
		`"uid":"UID","result":{"status":"Success"},"convertedObjects":["` + secret + `"]`,
	} {
		reason.Store(answer)
		w.status(500, "GET", v2+"/a", "")
		w.status(500, "GET", v2, "")
	}
	d := newTestWebhook(t)
	d.configure(w, "Mutating")
	d.setResponse(func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) string { return secret })
	w.status(500, "POST", widgets, widget("x", `,"password":"`+secret+`"`))
	d.setResponse(func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
		a.UID = secret
		return ""
	})
	w.status(500, "POST", widgets, widget("x", `,"password":"`+secret+`"`))
	d.respondWithPatch(`[{"op":"replace","path":"/spec/nothing/here","value":"` + secret + `"}]`)
	w.status(500, "POST", widgets, widget("x", `,"password":"`+secret+`"`))
	unauthenticated := newHTTPClient(t, c, func(r *rest.Config) {
		r.TLSClientConfig.CertData, r.TLSClientConfig.KeyData, r.TLSClientConfig.CertFile, r.TLSClientConfig.KeyFile = nil, nil, "", ""
		r.BearerToken = secret
	})
	unauthenticated.status(401, "GET", widgets, "")
	log.mu.Lock()
	defer log.mu.Unlock()
	if at := strings.Index(log.String(), secret); at >= 0 {
		t.Errorf("the log has %s", log.String()[max(0, at-300):min(log.Len(), at+100)])
	}
	if log.Len() == 0 {
		t.Error("nothing is logged at all")
	}
}
