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

// decider is an admission webhook whose answer a test decides.
type decider struct {
	*httptest.Server
	mu     sync.Mutex
	answer func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) (raw string)
	asked  int
}

func newDecider(t *testing.T) *decider {
	d := &decider{}
	d.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var review admissionv1.AdmissionReview
		if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		a := &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		d.mu.Lock()
		defer d.mu.Unlock()
		d.asked++
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

// set changes the answer.
func (d *decider) set(f func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answer, d.asked = f, 0
}

// patches answers with a JSON patch.
func (d *decider) patches(text string) {
	d.set(func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
		a.Patch, a.PatchType = []byte(text), new(admissionv1.PatchTypeJSONPatch)
		return ""
	})
}

// configure lets the decider decide about widgets, and waits until it is asked.
func (d *decider) configure(w *web, sort string) {
	w.Helper()
	d.set(func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
		a.Allowed = false
		return ""
	})
	w.must(201, "POST", "/apis/admissionregistration.k8s.io/v1/"+strings.ToLower(sort)+"webhookconfigurations", fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1",
"kind":"%sWebhookConfiguration","metadata":{"name":"decider"},"webhooks":[{"name":"decider.example.com","sideEffects":"None","admissionReviewVersions":["v1"],
"clientConfig":{"url":%q,"caBundle":%q},"rules":[{"operations":["*"],"apiGroups":["attack.example.com"],"apiVersions":["*"],"resources":["*/*"]}]}]}`, sort, d.URL, pemOf(d.Server)))
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

// doubling returns a patch that copies an object into itself again and again: 60 operations would make exabytes. format
// is how one operation is written.
func doubling(format string) string {
	var ops []string
	for i := range 60 {
		ops = append(ops, fmt.Sprintf(format, i))
	}
	return "[" + strings.Join(ops, ",") + "]"
}

// TestMutationsAreBounded: a webhook or policy cannot make an object arbitrarily large, or another object of it.
func TestMutationsAreBounded(t *testing.T) {
	w := newWeb(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "mutations"}
	s.define("widgets", "Widget", "Namespaced", looseSchema)
	d := newDecider(t)
	d.configure(w, "Mutating")
	d.patches(`[]`)
	w.must(201, "POST", widgets, widget("stored", ""))
	uid := show(w.must(200, "GET", widgets+"/stored", ""), "metadata.uid")
	for _, test := range []struct{ what, patch, want string }{
		{"doubles", doubling(`{"op":"copy","from":"/spec","path":"/spec/more%d"}`), "Unable to complete the copy"},
		{"grows", `[{"op":"add","path":"/spec/more","value":"` + strings.Repeat("x", 2<<20) + `"}]`, "too large"},
		{"says another kind", `[{"op":"replace","path":"/kind","value":"Other"}]`, "makes a attack.example.com/v1, Kind=Other"},
		{"says another version", `[{"op":"replace","path":"/apiVersion","value":"attack.example.com/v2"}]`, "makes a attack.example.com/v2, Kind=Widget"},
		{"says another name", `[{"op":"replace","path":"/metadata/name","value":"admin"}]`, "does not match the name on the URL"},
		{"says another namespace", `[{"op":"replace","path":"/metadata/namespace","value":"kube-system"}]`, "the namespace of the provided object does not match the namespace sent on the request"},
		{"says another UID", `[{"op":"replace","path":"/metadata/uid","value":"mine"}]`,
			"metadata.uid: Invalid value: \\\"mine\\\": field is immutable"},
		{"deletes it", `[{"op":"add","path":"/metadata/deletionTimestamp","value":"2020-01-01T00:00:00Z"}]`, "metadata.deletionTimestamp: Invalid value"},
		{"has no metadata", `[{"op":"remove","path":"/metadata"}]`, "name"},
		{"is no object", `[{"op":"replace","path":"","value":[1]}]`, ""},
	} {
		d.patches(test.patch)
		code, text := w.do("PATCH", widgets+"/stored", `{"spec":{"n":1}}`, "Content-Type: application/merge-patch+json")
		if code < 400 || !strings.Contains(text, test.want) {
			t.Errorf("a patch that %s: %d %.300s, want %s", test.what, code, text, test.want)
		}
	}
	d.patches(`[{"op":"replace","path":"/metadata/creationTimestamp","value":"2020-01-01T00:00:00Z"}]`)
	got := w.must(200, "PATCH", widgets+"/stored", `{"spec":{"n":2}}`, "Content-Type: application/merge-patch+json")
	if show(got, "metadata.uid") != uid || strings.Contains(show(got, "metadata.creationTimestamp"), "2020") {
		t.Errorf("the metadata is %s", show(got, "metadata"))
	}
	d.patches(`[]`)
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

// TestWebhooksSeeWhatIsStored: the old custom object that a webhook sees is the stored one, for an update, a patch, an
// apply, the status and a deletion.
func TestWebhooksSeeWhatIsStored(t *testing.T) {
	w := newWeb(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "old"}
	s.ask("", "POST "+definitionsPath, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.attack.example.com"},"spec":{
"group":"attack.example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[{"name":"v1","served":true,"storage":true,
"subresources":{"status":{}},"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, "201")
	s.ask("", "GET "+definitionsPath+"/widgets.attack.example.com", "", "established")
	d := newDecider(t)
	d.configure(w, "Validating")
	var old string
	d.set(func(q *admissionv1.AdmissionRequest, _ *admissionv1.AdmissionResponse) string {
		old = string(q.Operation) + " " + q.SubResource + " " + string(q.OldObject.Raw)
		return ""
	})
	lie := `{"apiVersion":"attack.example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"role":"forged"}},"spec":{"role":"forged"},"oldObject":{"spec":{"role":"forged"}}}`
	stored := w.must(201, "POST", widgets, `{"apiVersion":"attack.example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"role":"stored"}},"spec":{"role":"stored"}}`)
	version := show(stored, "metadata.resourceVersion")
	for _, test := range []struct{ method, path, body, contentType, want string }{
		{"PUT", "?dryRun=All", strings.Replace(lie, `"name":"w"`, `"name":"w","resourceVersion":`+version, 1), "application/json",
			"UPDATE  "},
		{"PATCH", "?dryRun=All", `{"metadata":{"labels":{"role":"forged"}},"spec":{"role":"forged"}}`, "application/merge-patch+json",
			"UPDATE  "},
		{"PATCH", "?dryRun=All&fieldManager=f&force=true", lie, "application/apply-patch+yaml", "UPDATE  "},
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

// TestNodesHaveNoExtensions: nodes can neither read nor write custom objects, webhook configurations and the like.
func TestNodesHaveNoExtensions(t *testing.T) {
	c := proatest.Start(t, proatest.Memory())
	w := newWeb(t, c)
	(&customScript{w: w, file: "nodes"}).define("widgets", "Widget", "Namespaced", looseSchema)
	w.must(201, "POST", widgets, widget("stored", ""))
	node := newWeb(t, c, as("system:node:n1", "system:nodes", "system:authenticated"))
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

// TestDefinitionsGoWithoutWebhooks: when the objects of a deleted definition are deleted, webhooks and policies are not
// called. For all other deletions they are.
func TestDefinitionsGoWithoutWebhooks(t *testing.T) {
	w := newWeb(t, proatest.Start(t, proatest.Memory()))
	s := &customScript{w: w, file: "cleanup"}
	s.define("widgets", "Widget", "Namespaced", looseSchema)
	d := newDecider(t)
	d.configure(w, "Validating")
	d.set(func(q *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
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
	s.ask("", "GET "+widgets+"/free", "", "until code = 404")
	// The other one waits for its finalizer, and nobody else may delete it meanwhile.
	s.ask("", "GET "+widgets+"/held", "", "until metadata.deletionGracePeriodSeconds = 0")
	w.must(200, "PATCH", widgets+"/held", `{"metadata":{"finalizers":null}}`, "Content-Type: application/merge-patch+json")
	s.ask("", "GET "+definitionsPath+"/widgets.attack.example.com", "", "until code = 404")
}

// syncBuffer collects a log.
type syncBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

// asked returns the UID of a review.
func asked(review []byte) string {
	var r struct{ Request struct{ UID string } }
	_ = json.Unmarshal(review, &r)
	return r.Request.UID
}

// TestExtensionsLogNoSecrets: even at the debug level, the log has neither custom objects, nor what webhooks answer
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
	w := newWeb(t, c)
	var reason atomic.Value
	hook := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		if reason, _ := reason.Load().(string); reason != "" {
			_, _ = fmt.Fprintf(w, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{%s}}`, strings.ReplaceAll(reason, "UID", asked(body)))
			return
		}
		http.Error(w, string(body)+secret, http.StatusInternalServerError)
	}))
	t.Cleanup(hook.Close)
	s := &customScript{w: w, file: "log"}
	s.ask("", "POST "+definitionsPath, fmt.Sprintf(convertedThings, hook.URL, pemOf(hook)), "201")
	s.ask("", "GET "+definitionsPath+"/things.convert.example.com", "", "established")
	s.define("widgets", "Widget", "Namespaced", looseSchema)
	const v1, v2 = "/apis/convert.example.com/v1/namespaces/default/things", "/apis/convert.example.com/v2/namespaces/default/things"
	w.must(201, "POST", v1, `{"apiVersion":"convert.example.com/v1","kind":"Thing","metadata":{"name":"a","annotations":{"a":"`+secret+`"}},"spec":{"size":3}}`)
	w.status(500, "GET", v2+"/a", "")
	w.status(500, "GET", v2, "")
	for _, said := range []string{
		`"uid":"UID","result":{"status":"Failure","message":"` + secret + `"}`, `"uid":"UID","result":{"status":"` + secret + `"}`,
		`"uid":"` + secret + `"`,
		`"uid":"UID","result":{"status":"Success"},"convertedObjects":[{"apiVersion":"` + secret + `","kind":"` + secret + `","metadata":{"name":"` + secret + `"}}]`,
		`"uid":"UID","result":{"status":"Success"},"convertedObjects":["` + secret + `"]`,
	} {
		reason.Store(said)
		w.status(500, "GET", v2+"/a", "")
		w.status(500, "GET", v2, "")
	}
	d := newDecider(t)
	d.configure(w, "Mutating")
	d.set(func(*admissionv1.AdmissionRequest, *admissionv1.AdmissionResponse) string { return secret })
	w.status(500, "POST", widgets, widget("x", `,"password":"`+secret+`"`))
	d.set(func(_ *admissionv1.AdmissionRequest, a *admissionv1.AdmissionResponse) string {
		a.UID = secret
		return ""
	})
	w.status(500, "POST", widgets, widget("x", `,"password":"`+secret+`"`))
	d.patches(`[{"op":"replace","path":"/spec/nothing/here","value":"` + secret + `"}]`)
	w.status(500, "POST", widgets, widget("x", `,"password":"`+secret+`"`))
	stranger := newWeb(t, c, func(r *rest.Config) {
		r.TLSClientConfig.CertData, r.TLSClientConfig.KeyData, r.TLSClientConfig.CertFile, r.TLSClientConfig.KeyFile = nil, nil, "", ""
		r.BearerToken = secret
	})
	stranger.status(401, "GET", widgets, "")
	log.mu.Lock()
	defer log.mu.Unlock()
	if at := strings.Index(log.String(), secret); at >= 0 {
		t.Errorf("the log has %s", log.String()[max(0, at-300):min(log.Len(), at+100)])
	}
	if log.Len() == 0 {
		t.Error("nothing is logged at all")
	}
}
