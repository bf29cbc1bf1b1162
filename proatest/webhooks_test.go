package proatest_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	admissionreviewv1 "k8s.io/api/admission/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
)

// webhookServer is a real HTTPS server of webhooks, by path.
type webhookServer struct {
	*httptest.Server
	mu   sync.Mutex // guards seen
	seen []string
}

// serveWebhooks starts a server: /sidecar adds a container to Pods, /deny rejects objects with an annotation and all operations
// that are not on one whole object, /move and /own change fields that a webhook may not change.
func serveWebhooks(t *testing.T) *webhookServer {
	t.Helper()
	s := &webhookServer{}
	s.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review admissionreviewv1.AdmissionReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		q := review.Request
		s.mu.Lock()
		s.seen = append(s.seen, fmt.Sprintf("%s %s %s %s %s %q", r.URL.Path, q.Operation, q.Kind.Kind, q.Kind.Version, q.SubResource,
			q.Name))
		s.mu.Unlock()
		a := &admissionreviewv1.AdmissionResponse{UID: q.UID, Allowed: true}
		patch := func(text string) { a.Patch, a.PatchType = []byte(text), new(admissionreviewv1.PatchTypeJSONPatch) }
		switch r.URL.Path {
		case "/sidecar":
			if !strings.Contains(string(q.Object.Raw), `"name":"proxy"`) {
				patch(`[{"op":"add","path":"/spec/containers/-","value":{"name":"proxy","image":"envoy"}}]`)
			}
		case "/deny":
			var o metav1.PartialObjectMetadata
			_ = json.Unmarshal(append(q.Object.Raw, q.OldObject.Raw...), &o)
			if o.Annotations["deny"] == string(q.Operation) || q.SubResource != "" {
				a.Allowed, a.Warnings = false, []string{"you were warned"}
				a.Result = &metav1.Status{Message: "no " + string(q.Operation) + " of " + q.Kind.Kind, Code: http.StatusTeapot}
			}
		case "/grow":
			patch(`[{"op":"replace","path":"/spec/size","value":3},{"op":"add","path":"/spec/parts","value":[{"unknown":1}]},{"op":"add","path":"/junk","value":1}]`)
		case "/mangle":
			patch(`[{"op":"add","path":"/metadata/labels","value":{"a":{"b":1}}}]`)
		case "/move":
			patch(`[{"op":"replace","path":"/metadata/namespace","value":"kube-system"}]`)
		case "/own":
			patch(`[{"op":"replace","path":"/metadata/uid","value":"mine"},{"op":"add","path":"/metadata/deletionTimestamp","value":"2020-01-01T00:00:00Z"}]`)
		}
		review.Request, review.Response = nil, a
		_ = json.NewEncoder(w).Encode(&review)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *webhookServer) at(path string) admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{URL: new(s.URL + path),
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
}

func (s *webhookServer) hasSeen(line string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.seen {
		if strings.HasPrefix(l, line) {
			return true
		}
	}
	return false
}

// mutating returns a configuration with one webhook for new objects of a resource.
func (s *webhookServer) mutating(name, path, resource string) *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name}, Webhooks: []admissionv1.MutatingWebhook{{
		Name: name + ".example.com", ClientConfig: s.at(path), SideEffects: new(admissionv1.SideEffectClassNone),
		AdmissionReviewVersions: []string{"v1"},
		Rules: []admissionv1.RuleWithOperations{{
			Operations: []admissionv1.OperationType{"CREATE"},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}},
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "default"}},
	}}}
}

// until polls until a condition holds.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 30 seconds: %s", what)
		}
	}
}

// TestWebhooks runs a Deployment under a webhook that adds a container to every Pod and one that rejects some objects.
func TestWebhooks(t *testing.T) {
	s := serveWebhooks(t)
	c := proatest.Start(t, proatest.Memory(), proatest.Simulate(1))
	store := func(resource string, o kind.Object) {
		t.Helper()
		if _, err := c.Client.Create(t.Context(), registration(resource), o); err != nil {
			t.Fatal(err)
		}
		// A view is opened when the cache, which the webhooks are read from, shows every write before.
		if _, err := c.Client.View(t.Context(), registration(resource)); err != nil {
			t.Fatal(err)
		}
	}
	all := admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"},
		Resources: []string{"configmaps", "deployments", "deployments/scale", "pods/exec"}}
	store("mutatingwebhookconfigurations", s.mutating("sidecar", "/sidecar", "pods"))
	store("validatingwebhookconfigurations",
		&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "deny"}, Webhooks: []admissionv1.ValidatingWebhook{{
			Name: "deny.example.com", ClientConfig: s.at("/deny"), SideEffects: new(admissionv1.SideEffectClassNone),
			AdmissionReviewVersions: []string{"v1"},
			Rules:                   []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{"*"}, Rule: all}},
		}}})
	config := func(name, deny string) error {
		_, err := c.Client.Create(t.Context(), gr.ConfigMaps,
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
				Annotations: map[string]string{"deny": deny}}})
		return err
	}
	const denied = `admission webhook "deny.example.com" denied the request: no CREATE of ConfigMap`
	until(t, "nothing is denied", func() bool { err := config("early", "CREATE"); return err != nil && err.Error() == denied })

	if err := create(t, c, gr.Deployments, &appsv1.Deployment{}, webDeployment); err != nil {
		t.Fatal(err)
	}
	pods := open(t, c, "pods")
	until(t, "no three Pods with two containers that run", func() bool {
		n := 0
		for o := range pods.List("default") {
			p := o.(*corev1.Pod)
			if len(p.Spec.Containers) == 2 && p.Spec.Containers[1].Name == "proxy" &&
				p.Spec.Containers[1].ImagePullPolicy == corev1.PullAlways && p.Status.Phase == corev1.PodRunning {
				n++
			}
		}
		return n == 3
	})
	if !s.hasSeen(`/sidecar CREATE Pod v1  ""`) {
		t.Errorf("a webhook saw a generated name before it was certain: %q", s.seen)
	}
	testDenied(t, c, s, config)
	testImmutableFields(t, c, s, store)
	if err := c.Client.Delete(t.Context(), registration("validatingwebhookconfigurations"), "", "deny",
		metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	// Another name: the first one was created if the server did not know the webhook yet.
	until(t, "a deleted webhook denies", func() bool { return config("late", "CREATE") == nil })
}

// testDenied checks that webhooks are called for deletions, collections, subresources and connections, too.
func testDenied(t *testing.T, c *proatest.Cluster, s *webhookServer, config func(name, deny string) error) {
	t.Helper()
	if err := config("kept", "DELETE"); err != nil {
		t.Fatal(err)
	}
	web := "/api/v1/namespaces/default/"
	for _, test := range []struct{ method, path, body, want string }{
		{"DELETE", web + "configmaps/kept", "", "no DELETE of ConfigMap"},
		{"DELETE", web + "configmaps", "", "no DELETE of ConfigMap"},
		{"PATCH", "/apis/apps/v1/namespaces/default/deployments/web/scale", `{"spec":{"replicas":1}}`, "no UPDATE of Scale"},
		{"POST", web + "pods/any/exec?command=sh&stdout=true", "", "no CONNECT of PodExecOptions"},
	} {
		code, text, warnings := send(t, c.Config, test.method, test.path, test.body)
		if code != http.StatusTeapot || !strings.Contains(text, `admission webhook \"deny.example.com\" denied the request: `+test.want) {
			t.Errorf("%s %s: %d %s", test.method, test.path, code, text)
		}
		if !strings.Contains(warnings, "you were warned") {
			t.Errorf("%s %s: warnings %s", test.method, test.path, warnings)
		}
	}
	if !s.hasSeen(`/deny CONNECT PodExecOptions v1 exec "any"`) {
		t.Errorf("seen %q", s.seen)
	}
}

// send sends a request as the administrator.
func send(t *testing.T, config *rest.Config, method, path, body string) (code int, text, warnings string) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	all, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(all), strings.Join(resp.Header.Values("Warning"), "; ")
}

// testImmutableFields checks that a webhook can neither move an object to another namespace nor change fields that the server sets.
func testImmutableFields(t *testing.T, c *proatest.Cluster, s *webhookServer, store func(string, kind.Object)) {
	t.Helper()
	secret := func(name string) (kind.Object, error) {
		return c.Client.Create(t.Context(), gr.Secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	}
	store("mutatingwebhookconfigurations", s.mutating("move", "/move", "secrets"))
	until(t, "an object has moved", func() bool {
		_, err := secret("x")
		_, there := c.Client.Get(t.Context(), gr.Secrets, "kube-system", "x", "")
		if there == nil {
			t.Fatal("the Secret is in another namespace")
		}
		return err != nil && strings.Contains(err.Error(), "the namespace of the provided object does not match the namespace sent on the request")
	})
	if err := c.Client.Delete(t.Context(), registration("mutatingwebhookconfigurations"), "", "move", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	store("mutatingwebhookconfigurations", s.mutating("own", "/own", "secrets"))
	until(t, "the webhook is not called", func() bool {
		o, err := secret(fmt.Sprint("y", time.Now().UnixNano()))
		if err != nil {
			return false
		}
		if o.GetUID() == "mine" || o.GetDeletionTimestamp() != nil {
			t.Fatalf("the webhook decided: %+v", o)
		}
		return s.hasSeen("/own CREATE Secret")
	})
}
