package webhook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
)

func asStatus(err error, into *apierrors.APIStatus) bool { return errors.As(err, into) }

// TestFailures checks what a webhook may do wrong, and what clients get if its failure policy is Fail. With Ignore, the
// write is admitted.
func TestFailures(t *testing.T) {
	var followed atomic.Int32
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	invalid := func(a *admissionv1.AdmissionResponse) func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse { return a }
	}
	const failed = `Internal error occurred: failed calling webhook "hook.example.com": `
	for name, test := range map[string]struct {
		webhookSetup
		want string
	}{
		"no server": {webhookSetup{change: func(w *admissionregv1.MutatingWebhook) { w.ClientConfig.URL = new("https://127.0.0.1:1/x") }},
			`failed to call webhook: Post "https://127.0.0.1:1/x?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused`},
		"unknown certificate": {webhookSetup{answer: allow,
			change: func(w *admissionregv1.MutatingWebhook) { w.ClientConfig.CABundle = nil }},
			`certificate signed by unknown authority`},
		"bundle": {webhookSetup{answer: allow, change: func(w *admissionregv1.MutatingWebhook) { w.ClientConfig.CABundle = []byte("x") }},
			`could not get REST client: unable to load root certificates: unable to parse bytes as PEM block`},
		"error": {webhookSetup{serve: func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "boom",
				http.StatusInternalServerError)
		}},
			`failed to call webhook: an error on the server ("boom") has prevented the request from succeeding`},
		"status": {webhookSetup{serve: func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"not you","code":403}`)
		}}, `failed to call webhook: not you`},
		"redirect": {webhookSetup{serve: func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/x" {
				followed.Add(1)
			}
			http.Redirect(w, req, "/elsewhere", http.StatusTemporaryRedirect)
		}}, `failed to call webhook: the server responded with the status code 307 but did not return more information`},
		"nothing": {webhookSetup{serve: answer("")}, `failed to call webhook: 0-length response with status code: 200 and content type: `},
		"no JSON": {webhookSetup{serve: answer("hello")},
			`failed to call webhook: couldn't get version/kind; json parse error: invalid character 'h'`},
		"no answer": {webhookSetup{serve: answer(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`)},
			`received invalid webhook response: webhook response was absent`},
		"huge": {webhookSetup{serve: answer(`{"response":"` + strings.Repeat("x", maxAnswer))},
			`failed to call webhook: the answer is larger than 4194304 bytes`},
		"deep": {webhookSetup{serve: answer(strings.Repeat("[", 1<<20))}, `failed to call webhook: couldn't get version/kind`},
		"no kind": {webhookSetup{serve: func(w http.ResponseWriter, req *http.Request) {
			body, _ := io.ReadAll(req.Body)
			_, uid, _ := strings.Cut(string(body), `"uid":"`)
			_, _ = fmt.Fprintf(w, `{"response":{"allowed":true,"uid":%q}}`, uid[:36])
		}}, `received invalid webhook response: expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=`},
		"uid": {webhookSetup{answer: invalid(&admissionv1.AdmissionResponse{UID: "x", Allowed: true})},
			`received invalid webhook response: expected response.uid="`},
		"versions": {webhookSetup{answer: allow,
			change: func(w *admissionregv1.MutatingWebhook) { w.AdmissionReviewVersions = []string{"v3"} }},
			`could not create admission objects: webhook does not accept known AdmissionReview versions (v1, v1beta1)`},
		"kept alive": {webhookSetup{serve: func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
			`failed to call webhook: Post`},
	} {
		for _, mutating := range []bool{true, false} {
			for _, policy := range []admissionregv1.FailurePolicyType{admissionregv1.Fail, admissionregv1.Ignore} {
				r := newRig(t)
				s := test.webhookSetup
				s.change = func(w *admissionregv1.MutatingWebhook) {
					if w.FailurePolicy = &policy; test.change != nil {
						test.change(w)
					}
				}
				plugin := r.add(s, mutating)
				err := plugin.Admit(t.Context(), r.createPod())
				if policy == admissionregv1.Ignore {
					if err != nil {
						t.Errorf("%s, ignored: %v", name, err)
					}
					if !strings.Contains(strings.Join(r.annotations, " "), "failed-open.") {
						t.Errorf("%s, ignored: notes %s", name, r.annotations)
					}
					continue
				}
				wantError(t, err, failed)
				wantError(t, err, test.want)
				if !apierrors.IsInternalError(err) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
	}
	if followed.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

// add registers a mutating or a validating webhook, and returns the plugin that calls it.
func (r *rig) add(s webhookSetup, mutating bool) kind.Plugin {
	if mutating {
		r.mutate(s)
		return r.mutating
	}
	r.validate(s)
	return r.validating
}

// TestInvalidPatches checks that a validating webhook may not patch at all, and that no patch is applied partially.
func TestInvalidPatches(t *testing.T) {
	patch := []byte(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)
	jsonPatch := new(admissionv1.PatchTypeJSONPatch)
	tooMany := []byte("[" + strings.Repeat(`{"op":"test","path":"/kind","value":"Pod"},`, maxPatchOps) +
		`{"op":"test","path":"/kind","value":"Pod"}]`)
	large := `[{"op":"add","path":"/metadata/annotations","value":{"a":"` + strings.Repeat("x", 1<<20) + `"}}`
	for i := range maxPatched >> 20 {
		large += fmt.Sprintf(`,{"op":"copy","from":"/metadata/annotations/a","path":"/metadata/annotations/a%d"}`, i)
	}
	for name, test := range map[string]struct {
		patch    []byte
		kind     *admissionv1.PatchType
		mutating bool
		want     string
	}{
		"validating":      {patch, nil, false, "received invalid webhook response: validating webhook may not return response.patch"},
		"validating type": {nil, jsonPatch, false, "received invalid webhook response: validating webhook may not return response.patchType"},
		"no type":         {patch, nil, true, "received invalid webhook response: webhook returned response.patch but not response.patchType"},
		"no patch":        {nil, jsonPatch, true, "received invalid webhook response: webhook returned response.patchType but not response.patch"},
		"empty type":      {patch, new(admissionv1.PatchType("")), true, `webhook returned invalid response.patchType of ""`},
		"other type":      {patch, new(admissionv1.PatchType("Merge")), true, `failed calling webhook "hook.example.com": unsupported patch type "Merge"`},
		"no JSON":         {[]byte("x"), jsonPatch, true, "received undecodable patch in webhook response"},
		"many":            {tooMany, jsonPatch, true, "received a patch of 10001 operations"},
		"large":           {[]byte(large + "]"), jsonPatch, true, "16777216 are allowed"},
		"nowhere":         {[]byte(`[{"op":"remove","path":"/nothing"}]`), jsonPatch, true, "Internal error occurred: "},
		"wrong type":      {[]byte(`[{"op":"add","path":"/spec","value":"x"}]`), jsonPatch, true, "Internal error occurred: "},
		"another kind": {[]byte(`[{"op":"replace","path":"/kind","value":"Secret"}]`), jsonPatch, true,
			"makes a /v1, Kind=Secret of a /v1, Kind=Pod"},
	} {
		r := newRig(t)
		plugin := r.add(webhookSetup{answer: func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
			return &admissionv1.AdmissionResponse{Allowed: true, Patch: test.patch, PatchType: test.kind}
		}}, test.mutating)
		a := r.createPod()
		err := plugin.Admit(t.Context(), a)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
		if a.Object.GetLabels() != nil {
			t.Errorf("%s: it was applied", name)
		}
	}
}

// TestUnresponsiveWebhooksTimeOut checks that a webhook which never responds delays a write for its timeout, and is
// ignored if its failure policy says so.
func TestUnresponsiveWebhooksTimeOut(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		r := newRig(t)
		release := make(chan struct{})
		defer close(release)
		plugin := r.add(webhookSetup{
			change: func(w *admissionregv1.MutatingWebhook) { w.TimeoutSeconds = new(int32(1)) },
			serve:  func(http.ResponseWriter, *http.Request) { <-release },
		}, mutating)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wantError(t, plugin.Admit(ctx, r.createPod()), `?timeout=1s": context deadline exceeded`)
		if ctx.Err() != nil {
			t.Error("it took a minute")
		}
	}
}

// TestEndlessResponses checks that the timeout covers the body too.
func TestEndlessResponses(t *testing.T) {
	r := newRig(t)
	plugin := r.add(webhookSetup{
		change: func(w *admissionregv1.MutatingWebhook) { w.TimeoutSeconds = new(int32(1)) },
		serve: func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			for req.Context().Err() == nil {
				_, _ = io.WriteString(w, " ")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Millisecond)
			}
		},
	}, true)
	wantError(t, plugin.Admit(t.Context(), r.createPod()), "context deadline exceeded")
}

// TestCanceledRequestsAreNotAdmitted checks that an ignored failure does not admit a write whose client has disconnected.
func TestCanceledRequestsAreNotAdmitted(t *testing.T) {
	r := newRig(t)
	ignore := func(w *admissionregv1.MutatingWebhook) { w.FailurePolicy = new(admissionregv1.Ignore) }
	ctx, cancel := context.WithCancel(t.Context())
	r.mutate(webhookSetup{configuration: "a", change: ignore, serve: func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // an HTTP server notices that a client disconnects only after it has read the request body
		cancel()
		<-req.Context().Done()
	}})
	wantError(t, r.mutating.Admit(ctx, r.createPod()), "request did not complete within requested timeout")
	r.validate(webhookSetup{configuration: "b", change: ignore, answer: allow})
	wantError(t, r.validating.Admit(ctx, r.createPod()), "request did not complete within requested timeout")
}

// TestTotalTimeout checks the total timeout of all webhooks, of which the second round gets the rest.
func TestTotalTimeout(t *testing.T) {
	r := newRig(t)
	r.mutate(webhookSetup{answer: allow, change: func(w *admissionregv1.MutatingWebhook) { w.FailurePolicy = new(admissionregv1.Ignore) }})
	a := r.createPod()
	before := beginRound(a).deadline
	a.Reinvocation.IsSecondRun = true
	if kept := beginRound(a); kept.deadline != before || time.Until(before) > totalTimeout {
		t.Errorf("the second round ends at %s, want %s", kept.deadline, before)
	}
	a = r.createPod()
	beginRound(a).deadline = time.Now()
	wantError(t, r.mutating.Admit(t.Context(), a), "request did not complete within requested timeout")
}

// TestDryRun checks that a webhook which may have side effects is not called for a dry run.
func TestDryRun(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		for effects, want := range map[admissionregv1.SideEffectClass]string{
			admissionregv1.SideEffectClassNone: "", admissionregv1.SideEffectClassNoneOnDryRun: "",
			admissionregv1.SideEffectClassSome:    `admission webhook "hook.example.com" does not support dry run`,
			admissionregv1.SideEffectClassUnknown: `admission webhook "hook.example.com" does not support dry run`,
		} {
			r := newRig(t)
			called := false
			plugin := r.add(webhookSetup{
				change: func(w *admissionregv1.MutatingWebhook) {
					w.SideEffects, w.FailurePolicy = &effects, new(admissionregv1.Ignore)
				},
				answer: func(req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
					called = *req.DryRun
					return allow(req)
				},
			}, mutating)
			a := r.createPod()
			a.DryRun = true
			err := plugin.Admit(t.Context(), a)
			if (err == nil) != (want == "") || err != nil && (err.Error() != want || !apierrors.IsBadRequest(err)) ||
				called != (want == "") {
				t.Errorf("%s: %v, called %t", effects, err, called)
			}
		}
	}
}

// TestNothingIsLogged checks that responses of webhooks, which may repeat a Secret, are not logged.
func TestNothingIsLogged(t *testing.T) {
	for _, mutating := range []bool{true, false} {
		r := newRig(t)
		for i, s := range []webhookSetup{
			{serve: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "hunter2", http.StatusInternalServerError) }},
			{serve: func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(500)
				_, _ = io.WriteString(w, `{"kind":"Status","status":"Failure","message":"hunter2","code":500}`)
			}},
			{serve: func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"response":{"uid":"hunter2"}}`)
			}},
			{serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"response":"hunter2"}`) }},
			{serve: func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"response":{"allowed":4929123412341234}}`)
			}},
			{serve: func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Type", "text/hunter2") }},
			{serve: respondWith(t, "hunter2\r\n\r\n")},
			{serve: respondWith(t, "HTTP/1.1 200 OK\r\nhunter2\r\n\r\n")},
			{serve: respondWith(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhunter2\r\n")},
			{answer: patchWith("[\"hunter2\"]")},
		} {
			err := r.add(s, mutating).Admit(t.Context(), r.createPod())
			if err == nil {
				t.Fatal("no error")
			}
			r.logger().Error("request failed", "err", err)
			if strings.Contains(r.log.String(), "hunter2") || strings.Contains(r.log.String(), "4929123412341234") {
				t.Errorf("case %d: the log has %s", i, r.log.String())
			}
		}
		if !strings.Contains(r.log.String(), "hook.example.com") {
			t.Error("nothing was logged at all")
		}
	}
}

// respondWith returns a handler that responds with a given text.
func respondWith(t *testing.T, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// TestTooLongResponsesAreNotRead checks that a response which is too long is read only up to the limit.
func TestTooLongResponsesAreNotRead(t *testing.T) {
	r := newRig(t)
	const maxRead = 64 << 20 // more than is read, including the buffers between both ends
	var wrote atomic.Int64
	plugin := r.add(webhookSetup{serve: func(w http.ResponseWriter, _ *http.Request) {
		piece := make([]byte, 1<<20)
		for wrote.Load() < maxRead {
			n, err := w.Write(piece)
			if wrote.Add(int64(n)); err != nil {
				return
			}
		}
	}}, false)
	wantError(t, plugin.Admit(t.Context(), r.createPod()), "the answer is larger than 4194304 bytes")
	if got := wrote.Load(); got >= maxRead {
		t.Errorf("%d bytes were read", got)
	}
}

// TestCallsAreRecordedAsSteps checks that each call is a step of the write's record, with its result in one word, and nothing
// of the webhook's response.
func TestCallsAreRecordedAsSteps(t *testing.T) {
	r := newRig(t)
	ignore := func(w *admissionregv1.MutatingWebhook) { w.FailurePolicy = new(admissionregv1.Ignore) }
	deny := func(*admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		return &admissionv1.AdmissionResponse{Result: &metav1.Status{Message: "hunter2"}}
	}
	broken := func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "hunter2", http.StatusTeapot) }
	r.mutate(webhookSetup{configuration: "m1", name: "changes.example.com",
		answer: patchWith(`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`)})
	r.mutate(webhookSetup{configuration: "m2", name: "nods.example.com", answer: allow})
	r.mutate(webhookSetup{configuration: "m3", name: "broken.example.com", serve: broken, change: ignore})
	r.validate(webhookSetup{configuration: "v1", name: "allows.example.com", answer: allow})
	r.validate(webhookSetup{configuration: "v2", name: "denies.example.com", answer: deny})
	r.validate(webhookSetup{configuration: "v4", name: "fails.example.com", serve: broken})
	a := r.createPod()
	a.Clock = &hop.Clock{}
	a.Clock.Begin(time.Now())
	a.Reinvocation = &kind.Reinvocation{}
	if err := r.mutating.Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := r.validating.Admit(t.Context(), a); err == nil {
		t.Fatal("the write was not denied")
	}
	var got []string
	for _, s := range a.Clock.Record.Steps {
		got = append(got, fmt.Sprintf("%s %s: %s %t", s.Hop, s.Name, s.Detail, s.Failed))
		if s.Took <= 0 || s.After <= 0 {
			t.Errorf("%s took %v after %v", s.Name, s.Took, s.After)
		}
	}
	want := []string{"mutate webhook changes.example.com: changed the object false", "mutate webhook nods.example.com:  false",
		"mutate webhook broken.example.com: failed, ignored true", "validate webhook allows.example.com:  false",
		"validate webhook denies.example.com: denied true", "validate webhook fails.example.com: failed true"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	slow := &callError{reason: fmt.Errorf("call: %w", context.DeadlineExceeded)}
	if got := describe(&outcome{hook: &hook{timeout: 10 * time.Second, ignore: true}, err: slow}, slow); got != "timeout 10s, ignored" {
		t.Error(got)
	}
}
