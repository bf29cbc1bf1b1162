// Package otlp tests the export of spans on a whole cluster, with a strict receiver of our own and with the OpenTelemetry Collector.
package otlp

import (
	"bytes"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"proa.dev/kinds/lib/gr"
	"proa.dev/proatest"
	"proa.dev/run"
	"proa.dev/trace"
	"proa.dev/trace/otlp"
	"proa.dev/trace/otlp/otlptest"
)

// exported is a cluster that has exported the creation of a Deployment until it was available.
type exported struct {
	deployment *appsv1.Deployment
	clusterUID string
	trace      *trace.Trace // of the Deployment, as the API shows it
}

// exportDeployment runs a cluster that exports to an endpoint, creates a Deployment there, waits until it is available and until its
// trace has been received, and ends the cluster.
func exportDeployment(t *testing.T, to otlp.Endpoint, received func() []otlptest.Span) exported {
	t.Helper()
	c := proatest.Start(t, proatest.Memory(), proatest.Simulate(1), func(c *run.Config) { c.OTLP = to })
	labels := map[string]string{"app": "web"}
	created, err := c.Client.Create(t.Context(), gr.Deployments, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "web"}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the Deployment is available", func() bool {
		d, err := c.Client.Get(t.Context(), gr.Deployments, "default", "web", "")
		return err == nil && d.(*appsv1.Deployment).Status.AvailableReplicas == 1
	})
	system, err := c.Client.Get(t.Context(), gr.Namespaces, "", "kube-system", "")
	if err != nil {
		t.Fatal(err)
	}
	traces := schema.GroupResource{Group: trace.Group, Resource: "traces"}
	shown, err := c.Client.Get(t.Context(), traces, "default", "deployments.apps:web", "")
	if err != nil {
		t.Fatal(err)
	}
	e := exported{created.(*appsv1.Deployment), string(system.GetUID()), shown.(*trace.Trace)}
	until(t, "the trace of the Deployment is received", func() bool {
		same, all := e.agreement(t, received())
		return isMost(same, all)
	})
	c.Stop()
	return e
}

// until waits for something that happens by itself.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it takes too long until %s", what)
		}
	}
}

// check looks for the spans of the Deployment and of what its creation has caused.
func (e *exported) check(t *testing.T, spans []otlptest.Span) {
	t.Helper()
	id := e.traceID(t)
	find := func(name string) otlptest.Span {
		t.Helper()
		for _, s := range spans {
			if s.GetName() == name && otlp.TraceID(s.GetTraceId()) == id {
				return s
			}
		}
		var there []string
		for _, s := range spans {
			there = append(there, fmt.Sprintf("%.4x %s", s.GetTraceId(), s.GetName()))
		}
		t.Fatalf("there is no span %q in the trace %x among %d:\n%s", name, id, len(spans), strings.Join(there, "\n"))
		return otlptest.Span{}
	}
	root, set, pod := find("create deployments.apps"), find("create replicasets.apps"), find("create pods")
	for key, want := range map[string]string{
		"k8s.namespace.name": "default", "k8s.deployment.name": "web", "k8s.deployment.uid": string(e.deployment.UID),
		"enduser.id": "kubernetes-admin", "proa.object.revision": e.deployment.ResourceVersion,
	} {
		if root.Tags[key] != want {
			t.Errorf("the creation of the Deployment has %s=%q, want %q", key, root.Tags[key], want)
		}
	}
	for key, want := range map[string]string{"service.name": "proa", "k8s.cluster.uid": e.clusterUID} {
		if root.Resource[key] != want {
			t.Errorf("the resource has %s=%q, want %q", key, root.Resource[key], want)
		}
	}
	for _, c := range []struct{ effect, cause otlptest.Span }{{set, root}, {pod, set}} {
		l := c.effect.GetLinks()
		if len(c.effect.GetParentSpanId()) != 0 || len(l) != 1 || !bytes.Equal(l[0].GetSpanId(), c.cause.GetSpanId()) ||
			!bytes.Equal(l[0].GetTraceId(), id[:]) {
			t.Errorf("%s has the links %v and the parent %x, want a link to %s", c.effect.GetName(), l, c.effect.GetParentSpanId(),
				c.cause.GetName())
		}
	}
	hops := map[string]bool{}
	for _, s := range spans {
		if bytes.Equal(s.GetParentSpanId(), root.GetSpanId()) {
			hops[s.Tags["proa.hop.name"]] = true
			if s.GetStartTimeUnixNano() < root.GetStartTimeUnixNano() || s.GetEndTimeUnixNano() > root.GetEndTimeUnixNano() {
				t.Errorf("the hop %s is not within its request", s.GetName())
			}
		}
	}
	if !hops["commit"] || len(hops) < 3 {
		t.Errorf("the creation has the hops %v", hops)
	}
	e.checkAgreement(t, spans)
}

// checkAgreement holds that the trace which users download has the IDs of what the server has sent.
func (e *exported) checkAgreement(t *testing.T, spans []otlptest.Span) {
	t.Helper()
	if same, all := e.agreement(t, spans); !isMost(same, all) {
		t.Errorf("%d of %d downloaded spans were sent by the server under the same ID", same, all)
	}
}

// isMost reports whether so many of all are nearly all: of work that went on while the trace was downloaded the server sends another span
// when it has ended.
func isMost(some, all int) bool { return some >= all*9/10 }

// agreement returns how many spans the trace has that users download, and how many of them are among those that the server has sent.
func (e *exported) agreement(t *testing.T, spans []otlptest.Span) (same, all int) {
	t.Helper()
	sent := map[string]bool{}
	for _, s := range spans {
		sent[string(s.GetSpanId())] = true
	}
	body, err := otlp.JSON(e.trace)
	if err != nil {
		t.Fatal(err)
	}
	downloaded, err := otlptest.Decode(body)
	if err != nil {
		t.Fatal(err)
	}
	id := e.traceID(t)
	for _, s := range downloaded {
		if otlp.TraceID(s.GetTraceId()) != id {
			t.Fatalf("the downloaded span %s is in the trace %x, want %x", s.GetName(), s.GetTraceId(), id)
		}
		if sent[string(s.GetSpanId())] {
			same++
		}
	}
	return same, len(downloaded)
}

// traceID returns the ID of the trace that the creation of the Deployment has begun.
func (e *exported) traceID(t *testing.T) otlp.TraceID {
	t.Helper()
	return otlp.WriteTraceID(e.deployment.UID, revision(t, e.deployment.ResourceVersion))
}

func revision(t *testing.T, text string) (rev int64) {
	t.Helper()
	rev, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// TestExport runs a cluster with a receiver that takes nothing but valid OTLP/JSON.
func TestExport(t *testing.T) {
	t.Parallel()
	var r otlptest.Receiver
	srv := httptest.NewServer(&r)
	defer srv.Close()
	spans := func() []otlptest.Span {
		spans, err := r.Spans()
		if err != nil {
			t.Fatalf("the receiver refused a batch: %v", err)
		}
		return spans
	}
	e := exportDeployment(t, otlp.Endpoint{URL: srv.URL}, spans)
	e.check(t, spans())
}

// TestExportWithACredential runs a cluster with a receiver that wants TLS, a credential and compressed bodies.
func TestExportWithACredential(t *testing.T) {
	t.Parallel()
	r := otlptest.Receiver{Authorization: "Bearer token-of-the-cluster", Encoding: "gzip"}
	srv := httptest.NewTLSServer(&r)
	defer srv.Close()
	dir := t.TempDir()
	to := otlp.Endpoint{URL: srv.URL, CAFile: filepath.Join(dir, "ca.pem"), HeadersFile: filepath.Join(dir, "headers"), Gzip: true}
	for file, text := range map[string][]byte{
		to.CAFile:      pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
		to.HeadersFile: []byte("Authorization: " + r.Authorization + "\n"),
	} {
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	spans := func() []otlptest.Span {
		spans, err := r.Spans()
		if err != nil {
			t.Fatalf("the receiver refused a batch: %v", err)
		}
		return spans
	}
	e := exportDeployment(t, to, spans)
	e.check(t, spans())
}

// TestNodeUID checks that the spans of what a node does have the UID of its Node.
func TestNodeUID(t *testing.T) {
	t.Parallel()
	var r otlptest.Receiver
	srv := httptest.NewServer(&r)
	defer srv.Close()
	c := proatest.Start(t, proatest.Memory(), func(c *run.Config) { c.OTLP.URL = srv.URL })
	node, err := c.Client.Create(t.Context(), gr.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}})
	if err != nil {
		t.Fatal(err)
	}
	if code, err := createNamespace(t, c.Config, "system:node:n1", "own", nil); err != nil || code != http.StatusForbidden {
		t.Fatalf("a node that creates a namespace gets %d, %v", code, err)
	}
	c.Stop()
	spans, err := r.Spans()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range spans {
		if s.Tags["enduser.id"] == "system:node:n1" {
			found = true
			if s.Tags["k8s.node.name"] != "n1" || s.Tags["k8s.node.uid"] != string(node.GetUID()) {
				t.Errorf("the span %s of the node %s has %v", s.GetName(), node.GetUID(), s.Tags)
			}
		}
	}
	if !found {
		t.Errorf("there is no span of the node among %d", len(spans))
	}
}

const (
	foreignTrace  = "0af7651916cd43dd8448eb211c80319c"
	foreignSpan   = "b7ad6b7169203331"
	foreignParent = "00-" + foreignTrace + "-" + foreignSpan + "-01"
)

// TestTraceParentOfAnAttacker tries row 43 of the attacks: a traceparent of a user who has every right but is not in a trusted group, of
// one whose request is refused, a tracestate of a megabyte, and many of them at once.
func TestTraceParentOfAnAttacker(t *testing.T) {
	t.Parallel()
	var r otlptest.Receiver
	srv := httptest.NewServer(&r)
	defer srv.Close()
	c := proatest.Start(t, proatest.Memory(), func(c *run.Config) { c.OTLP.URL = srv.URL })
	_, err := c.Client.Create(t.Context(), schema.GroupResource{Group: rbacv1.GroupName, Resource: "clusterrolebindings"},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "mallory"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "mallory"}},
		})
	if err != nil {
		t.Fatal(err)
	}
	create := func(user, name string, header http.Header) (int, error) {
		return createNamespace(t, c.Config, user, name, header)
	}
	until(t, "mallory may create namespaces", func() bool {
		code, err := create("mallory", "first", nil)
		return err == nil && code == http.StatusCreated
	})

	with := func(parent, state string) http.Header {
		return http.Header{"Traceparent": {parent}, "Tracestate": {state}}
	}
	for user, want := range map[string]int{"mallory": http.StatusCreated, "nobody": http.StatusForbidden, "": http.StatusCreated} {
		if code, err := create(user, "by-"+user+"x", with(foreignParent, strings.Repeat("a=b,", 100))); err != nil || code != want {
			t.Errorf("%q with a traceparent: %d, %v, want %d", user, code, err, want)
		}
	}
	if code, err := create("mallory", "large", with(foreignParent, strings.Repeat("a=b,", 1<<18))); err == nil && code < 400 {
		t.Errorf("a request with a tracestate of a megabyte was answered with %d", code)
	}
	for i := range 100 {
		parent := strings.Replace(foreignParent, foreignTrace[:4], strconv.Itoa(1000+i), 1)
		if code, err := create("mallory", "flood-"+strconv.Itoa(i), with(parent, "")); err != nil || code != http.StatusCreated {
			t.Fatalf("request %d of a flood: %d, %v", i, code, err)
		}
	}
	metrics := readMetrics(t, c.Config)
	c.Stop()
	spans, err := r.Spans()
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, s := range spans {
		id, parent := hex.EncodeToString(s.GetTraceId()), hex.EncodeToString(s.GetParentSpanId())
		foreign := id == foreignTrace || parent == foreignSpan
		if by := s.Tags["enduser.id"]; foreign && (by == "mallory" || by == "nobody") {
			t.Errorf("%s of %q got into the trace of another system", s.GetName(), by)
		}
		if id != foreignTrace && strings.HasSuffix(id, foreignTrace[4:]) {
			t.Errorf("%s has a trace ID that an attacker chose", s.GetName())
		}
		if id == foreignTrace && parent == foreignSpan {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d requests are parts of the administrator's trace, want his one", found)
	}
	if !strings.Contains(metrics, "\nproa_otlp_spans_dropped_total 0\n") || !strings.Contains(metrics, "\nproa_otlp_spans_sent_total ") {
		t.Error("the metrics do not say how many spans were sent and dropped")
	}
}

// createNamespace creates a namespace as the administrator, or as a user whom he impersonates.
func createNamespace(t *testing.T, config *rest.Config, user, name string, header http.Header) (int, error) {
	t.Helper()
	body := strings.NewReader(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"` + name + `"}}`)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host+"/api/v1/namespaces", body)
	if err != nil {
		t.Fatal(err)
	}
	for key, values := range header {
		req.Header[key] = values
	}
	req.Header.Set("Content-Type", "application/json")
	if user != "" {
		req.Header.Set("Impersonate-User", user)
	}
	code, _, err := do(t, config, req)
	return code, err
}

func do(t *testing.T, config *rest.Config, req *http.Request) (int, string, error) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

func readMetrics(t *testing.T, config *rest.Config) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	code, text, err := do(t, config, req)
	if err != nil || code != http.StatusOK {
		t.Fatalf("metrics: %d, %v", code, err)
	}
	return text
}
