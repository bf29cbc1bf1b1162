package webhook

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestParallel checks that validating webhooks are called concurrently, and that the first denial in their order is
// returned.
func TestParallel(t *testing.T) {
	r := newRig(t)
	both := make(chan struct{}, 2)
	for _, name := range []string{"a", "b", "c"} {
		r.validate(webhookSetup{configuration: name, name: name + ".example.com",
			change: func(w *admissionregv1.MutatingWebhook) { w.TimeoutSeconds = new(int32(30)) },
			answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
				if name == "c" {
					return allow(req)
				}
				both <- struct{}{}
				for deadline := time.Now().Add(20 * time.Second); len(both) < 2 && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				out := &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "waited in vain"}}
				if len(both) == 2 {
					out.Result.Message = "met"
				}
				return out
			}})
	}
	wantError(t, r.validating.Admit(t.Context(), r.createPod()), `admission webhook "a.example.com" denied the request: met`)
}

// TestMatchConditions checks that conditions decide whether a webhook is called; the failure policy applies if they
// cannot be evaluated.
func TestMatchConditions(t *testing.T) {
	for expression, want := range map[string]string{
		`object.metadata.name == "name"`:                                                                 "asked",
		`object.metadata.name == "other"`:                                                                "",
		`request.operation == "CREATE" && request.userInfo.username == "jane"`:                           "asked",
		`request.kind.kind == "Pod" && request.resource.resource == "pods" && !has(request.subResource)`: "asked",
		`oldObject == null`: "asked",
		`authorizer.group("").resource("pods").namespace("ns").check("dance").allowed()`:  "asked",
		`authorizer.group("").resource("pods").namespace("ns").check("delete").allowed()`: "",
		`object.spec.nothing == 1`: `pods "name" is forbidden: expression 'object.spec.nothing == 1' resulted in error: no such key: nothing`,
		`[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, [1,2,3,4,5,6,7,8,9,10].all(g, true)))))))`: `pods "name" is forbidden: `,
	} {
		for _, policy := range []admissionregv1.FailurePolicyType{admissionregv1.Fail, admissionregv1.Ignore} {
			for _, mutating := range []bool{true, false} {
				r := newRig(t)
				called := ""
				plugin := r.add(webhookSetup{
					change: func(w *admissionregv1.MutatingWebhook) {
						w.FailurePolicy = &policy
						w.MatchConditions = []admissionregv1.MatchCondition{{Name: "c", Expression: expression}}
					},
					answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
						called = "asked"
						return allow(req)
					},
				}, mutating)
				err := plugin.Admit(t.Context(), r.createPod())
				switch {
				case strings.HasPrefix(want, "pods") && policy == admissionregv1.Fail:
					if err == nil || !strings.HasPrefix(err.Error(), want) || called != "" {
						t.Errorf("%s: %v, %s", expression, err, called)
					}
				case strings.HasPrefix(want, "pods"):
					if err != nil || called != "" {
						t.Errorf("%s: %v, %s", expression, err, called)
					}
				case err != nil || called != want:
					t.Errorf("%s: %v, %q, want %q", expression, err, called, want)
				}
			}
		}
	}
}

// TestOlderReviews checks that a webhook which supports only v1beta1 gets that, and that its responses are not checked
// as those of v1 are.
func TestOlderReviews(t *testing.T) {
	r := newRig(t)
	r.mutate(webhookSetup{
		change: func(w *admissionregv1.MutatingWebhook) { w.AdmissionReviewVersions = []string{"v7", "v1beta1", "v1"} },
		answer: func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{UID: "another", Allowed: true,
				Patch: []byte(`[{"op":"add","path":"/metadata/labels","value":{"old":"yes"}}]`)}
		},
	})
	a := r.createPod()
	if err := r.mutating.Admit(t.Context(), a); err != nil || a.Object.GetLabels()["old"] != "yes" {
		t.Errorf("%v, %v", err, a.Object.GetLabels())
	}
}

// TestPanicsAreErrors checks that a panic during the call of one webhook fails one write, not the server.
func TestPanicsAreErrors(t *testing.T) {
	r := newRig(t)
	r.validate(webhookSetup{answer: allow})
	a := r.createPod()
	a.User = nil
	wantError(t, r.validating.Admit(t.Context(), a), `ValidatingAdmissionWebhook/hook.example.com has panicked`)
}

// TestMetrics checks that the metrics have upstream's names and labels.
func TestMetrics(t *testing.T) {
	r := newRig(t)
	r.validate(webhookSetup{answer: func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Code: 900}}
	}})
	r.mutate(webhookSetup{configuration: "open", name: "open.example.com", change: func(w *admissionregv1.MutatingWebhook) {
		w.FailurePolicy, w.ClientConfig.URL = new(admissionregv1.Ignore), new("https://127.0.0.1:1")
	}})
	_ = r.validating.Admit(t.Context(), r.createPod())
	_ = r.mutating.Admit(t.Context(), r.createPod())
	registry := prometheus.NewRegistry()
	registry.MustRegister(r.metrics)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			line := f.GetName()
			for _, l := range m.GetLabel() {
				line += " " + l.GetValue()
			}
			got = append(got, line)
		}
	}
	want := []string{
		"apiserver_admission_webhook_admission_duration_seconds hook.example.com CREATE true validating",
		"apiserver_admission_webhook_admission_duration_seconds open.example.com CREATE false admit",
		"apiserver_admission_webhook_fail_open_count open.example.com admit",
		"apiserver_admission_webhook_rejection_count no_error hook.example.com CREATE 600 validating",
		"apiserver_admission_webhook_request_total 503 open.example.com CREATE false admit",
		"apiserver_admission_webhook_request_total 600 hook.example.com CREATE true validating",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
