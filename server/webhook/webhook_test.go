package webhook

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/server/extensionclient"
)

// rig has the two webhook plugins, the configurations that they read, and the warnings and audit annotations of a write.
type rig struct {
	t                    testing.TB
	mutating, validating kind.Plugin
	metrics              *Metrics
	log                  bytes.Buffer
	defs                 []*kind.Def

	mu         sync.Mutex // guards what follows
	generation int64
	objects    []kind.Object
	unreadable error

	warnings, annotations []string
}

func newRig(t testing.TB) *rig {
	t.Helper()
	r := &rig{t: t, metrics: NewMetrics(), defs: kinds.All()}
	clients := extensionclient.New(extensionclient.Config{})
	t.Cleanup(clients.Close)
	allowAll := authorizer.AuthorizerFunc(func(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "dance" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	r.mutating, r.validating = Plugins(Config{
		Mutating: r, Validating: r, Clients: clients, Authorizer: allowAll, Metrics: r.metrics,
		Log: slog.New(slog.NewTextHandler(&r.log, nil)),
	})
	return r
}

func (*rig) Wait(context.Context) error { return nil }

func (r *rig) Generation() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.generation
}

func (r *rig) All(gr schema.GroupResource) (iter.Seq[kind.Object], error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(r.objects), func(o kind.Object) bool {
		_, mutating := o.(*admissionregv1.MutatingWebhookConfiguration)
		return mutating != (gr == MutatingConfigurations())
	})
	slices.SortFunc(all, func(a, b kind.Object) int { return cmp.Compare(a.GetName(), b.GetName()) })
	return slices.Values(all), r.unreadable
}

// configure stores a configuration, after setting its defaults.
func (r *rig) configure(o kind.Object) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range r.defs {
		if d.Group == admissionregv1.GroupName && d.HasType(o) {
			d.Default(o)
		}
	}
	r.generation++
	o.SetUID(types.UID(o.GetName()))
	o.SetGeneration(r.generation)
	r.objects = append(slices.DeleteFunc(r.objects, func(x kind.Object) bool { return x.GetName() == o.GetName() }), o)
}

// webhookSetup describes one webhook; zero values have usual defaults.
type webhookSetup struct {
	configuration, name string
	change              func(w *admissionregv1.MutatingWebhook)
	answer              func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse
	serve               http.HandlerFunc // instead of answer
}

// mutate registers a mutating webhook, validate a validating one.
func (r *rig) mutate(s webhookSetup) { r.configure(mutatingConfiguration(r.webhook(s), s)) }

func (r *rig) validate(s webhookSetup) { r.configure(validatingConfiguration(r.webhook(s), s)) }

func mutatingConfiguration(w admissionregv1.MutatingWebhook, s webhookSetup) kind.Object {
	return &admissionregv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(s.configuration, "config")}, Webhooks: []admissionregv1.MutatingWebhook{w},
	}
}

func validatingConfiguration(w admissionregv1.MutatingWebhook, s webhookSetup) kind.Object {
	return &admissionregv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: cmp.Or(s.configuration, "config")}, Webhooks: []admissionregv1.ValidatingWebhook{{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, SideEffects: w.SideEffects,
			AdmissionReviewVersions: w.AdmissionReviewVersions,
			FailurePolicy:           w.FailurePolicy, MatchConditions: w.MatchConditions, TimeoutSeconds: w.TimeoutSeconds,
			MatchPolicy: w.MatchPolicy,
		}},
	}
}

func (r *rig) webhook(s webhookSetup) admissionregv1.MutatingWebhook {
	r.t.Helper()
	h := s.serve
	if h == nil {
		h = func(w http.ResponseWriter, req *http.Request) {
			var review admissionv1.AdmissionReview
			if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Response = s.answer(review.Request)
			if review.Response.UID == "" {
				review.Response.UID = review.Request.UID
			}
			review.Request = nil
			_ = json.NewEncoder(w).Encode(&review)
		}
	}
	server := httptest.NewUnstartedServer(h)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.StartTLS()
	r.t.Cleanup(server.Close)
	w := admissionregv1.MutatingWebhook{
		Name: cmp.Or(s.name, "hook.example.com"),
		ClientConfig: admissionregv1.WebhookClientConfig{URL: new(server.URL + "/x"),
			CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})},
		Rules: []admissionregv1.RuleWithOperations{{Operations: []admissionregv1.OperationType{"*"},
			Rule: admissionregv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}}}},
		SideEffects:             new(admissionregv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
	}
	if s.change != nil {
		s.change(&w)
	}
	return w
}

// write returns the admission of a write of a resource.
func (r *rig) write(verb, version, resource string, object, old kind.Object) *kind.Admission {
	r.t.Helper()
	resource, sub, _ := strings.Cut(resource, "/")
	a := &kind.Admission{
		Verb: verb, Sub: sub, Object: object, Old: old, Namespace: "ns", Name: "name",
		User:                   &user.DefaultInfo{Name: "jane", Groups: []string{"devs"}},
		Warn:                   func(texts ...string) { r.warnings = append(r.warnings, texts...) },
		AddAuditAnnotation:     func(key, value string) { r.annotations = append(r.annotations, key+"="+value) },
		AddAuditBodyAnnotation: func(key, value string) { r.annotations = append(r.annotations, "body "+key+"="+value) },
		Versions: func(gr schema.GroupResource) (out []*kind.Def) {
			for _, d := range r.defs {
				if d.Storage().Resource() == gr {
					out = append(out, d)
				}
			}
			return out
		},
		Reinvocation: &kind.Reinvocation{},
	}
	for _, d := range r.defs {
		if d.GroupVersion().String() == version && d.Plural == resource {
			a.Served, a.Def = d, d.Storage()
		}
	}
	if a.Def == nil {
		r.t.Fatalf("%s %s is not served", version, resource)
	}
	if object != nil && object.GetName() != "" {
		a.Name = object.GetName()
	}
	switch verb {
	case "create":
		a.Options = &metav1.CreateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "CreateOptions"}}
	case "update":
		a.Options = &metav1.UpdateOptions{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "UpdateOptions"}}
	}
	return a
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func (r *rig) createPod() *kind.Admission { return r.write("create", "v1", "pods", pod("name"), nil) }

func allow(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return &admissionv1.AdmissionResponse{Allowed: true}
}

// patchWith returns a webhook that responds with a patch.
func patchWith(patch string) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(patch), PatchType: new(admissionv1.PatchTypeJSONPatch)}
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestReview checks what is sent to a webhook.
func TestReview(t *testing.T) {
	r := newRig(t)
	var sent []byte
	var query, media string
	r.validate(webhookSetup{serve: func(w http.ResponseWriter, req *http.Request) {
		sent, _ = io.ReadAll(req.Body)
		query, media = req.Method+" "+req.URL.String(), req.Header.Get("Content-Type")
		http.Error(w, "no", http.StatusTeapot)
	}})
	a := r.write("update", "v1", "pods", pod("name"), pod("name"))
	a.Object.SetLabels(map[string]string{"new": "yes"})
	a.DryRun = true
	_ = r.validating.Admit(t.Context(), a)
	if query != "POST /x?timeout=10s" || media != "application/json" {
		t.Errorf("%s with %s", query, media)
	}
	var got map[string]any
	if err := json.Unmarshal(sent, &got); err != nil {
		t.Fatal(err)
	}
	request := got["request"].(map[string]any)
	delete(request, "uid")
	for _, key := range []string{"object", "oldObject"} {
		o := request[key].(map[string]any)
		meta := o["metadata"].(map[string]any)
		request[key] = fmt.Sprint(o["apiVersion"], o["kind"], meta["name"], meta["labels"])
	}
	text, _ := json.Marshal(got)
	want := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"dryRun":true,` +
		`"kind":{"group":"","kind":"Pod","version":"v1"},"name":"name","namespace":"ns",` +
		`"object":"v1Podnamemap[new:yes]","oldObject":"v1Podname\u003cnil\u003e","operation":"UPDATE",` +
		`"options":{"apiVersion":"meta.k8s.io/v1","kind":"UpdateOptions"},"requestKind":{"group":"","kind":"Pod","version":"v1"},` +
		`"requestResource":{"group":"","resource":"pods","version":"v1"},"resource":{"group":"","resource":"pods","version":"v1"},` +
		`"userInfo":{"groups":["devs"],"username":"jane"}}}`
	if string(text) != want {
		t.Errorf("got\n%s\nwant\n%s", text, want)
	}
}

// TestWebhooksAreNotCalledForWebhookConfigurations checks that a broken webhook cannot prevent its own repair.
func TestWebhooksAreNotCalledForWebhookConfigurations(t *testing.T) {
	r := newRig(t)
	deny := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{}
	}
	r.mutate(webhookSetup{configuration: "a", answer: deny})
	r.validate(webhookSetup{configuration: "b", answer: deny})
	for _, resource := range []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations", "validatingadmissionpolicies"} {
		a := r.write("delete", "admissionregistration.k8s.io/v1", resource, nil, nil)
		for _, p := range []kind.Plugin{r.mutating, r.validating} {
			if err := p.Admit(t.Context(), a); err != nil {
				t.Error(err)
			}
		}
	}
	wantError(t, r.validating.Admit(t.Context(), r.createPod()), "without explanation")
}

// TestConfigurationsChange checks that a stored configuration takes effect with the next write, and that one which
// cannot be read rejects writes.
func TestConfigurationsChange(t *testing.T) {
	r := newRig(t)
	if err := r.validating.Admit(t.Context(), r.createPod()); err != nil {
		t.Fatal(err)
	}
	message := "first"
	deny := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: message}}
	}
	r.validate(webhookSetup{answer: deny})
	err := r.validating.Admit(t.Context(), r.createPod())
	wantError(t, err, `admission webhook "hook.example.com" denied the request: first`)
	r.validate(webhookSetup{answer: deny, name: "other.example.com"})
	wantError(t, r.validating.Admit(t.Context(), r.createPod()), `admission webhook "other.example.com" denied`)
	r.mu.Lock()
	r.objects, r.generation, r.unreadable = nil, r.generation+1, fmt.Errorf("cannot be decoded")
	r.mu.Unlock()
	wantError(t, r.validating.Admit(t.Context(), r.createPod()), "cannot be decoded")
	r.mu.Lock()
	r.unreadable = nil
	r.mu.Unlock()
	if err := r.validating.Admit(t.Context(), r.createPod()); err != nil {
		t.Error(err)
	}
}

// TestRefusals checks that a denial has the message and the code of the webhook, as far as they are valid for a denial.
func TestRefusals(t *testing.T) {
	for name, test := range map[string]struct {
		result *metav1.Status
		code   int32
		text   string
	}{
		"nothing": {nil, 400, `admission webhook "hook.example.com" denied the request without explanation`},
		"message": {&metav1.Status{Message: "m", Code: 403, Reason: "r"}, 403,
			`admission webhook "hook.example.com" denied the request: m`},
		"reason": {&metav1.Status{Reason: "r", Code: 200}, 400, `admission webhook "hook.example.com" denied the request: r`},
		"code":   {&metav1.Status{Code: 1000, Status: "Success"}, 500, `admission webhook "hook.example.com" denied the request without explanation`},
		"long":   {&metav1.Status{Message: strings.Repeat("x", 2*maxMessage)}, 400, "xxx..."},
	} {
		for _, mutating := range []bool{true, false} {
			r := newRig(t)
			s := webhookSetup{answer: func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				return &admissionv1.AdmissionResponse{Result: test.result}
			}}
			plugin := r.validating
			if mutating {
				plugin = r.mutating
				r.mutate(s)
			} else {
				r.validate(s)
			}
			err := plugin.Admit(t.Context(), r.createPod())
			wantError(t, err, test.text)
			if st := apierrors.APIStatus(nil); !asStatus(err, &st) || st.Status().Code != test.code || st.Status().Status != "Failure" {
				t.Errorf("%s: %#v", name, err)
			}
		}
	}
}
