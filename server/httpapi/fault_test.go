package httpapi_test

import (
	"bufio"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"proa.dev/kv"
	"proa.dev/proatest"
	"proa.dev/run"
)

var errStoreUnavailable = errors.New("the store was taken away by a test")

// TestStoreUnavailable checks that while the store does not answer, every request that needs it is answered with a 503 that says so; when
// it is back, everything works again.
func TestStoreUnavailable(t *testing.T) {
	var unavailable atomic.Bool
	c := proatest.Start(t, func(c *run.Config) {
		c.StoreHook = func(_, _ string) error {
			if unavailable.Load() {
				return errStoreUnavailable
			}
			return nil
		}
	})
	w := newHTTPClient(t, c)
	const maps = "/api/v1/namespaces/default/configmaps"
	body := func(name, value string) string {
		return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"k":%q}}`, name, value)
	}
	w.must(201, "POST", maps, body("a", "1"))
	w.must(201, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1",
		"kind":"ClusterRoleBinding","metadata":{"name":"carol"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"carol"}],
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"}}`)
	watched := openWatch(t, w, maps+"?watch=1&fieldSelector=metadata.name%3Da")
	if got := <-watched; !strings.Contains(got, `"ADDED"`) {
		t.Fatalf("the watch begins with %s", got)
	}

	for _, who := range []string{"", "carol"} {
		unavailable.Store(true)
		var headers []string
		if who != "" {
			headers = append(headers, "Impersonate-User: "+who)
		}
		for _, r := range []struct{ method, path, body, contentType string }{
			{"GET", maps + "/a", "", ""},
			{"GET", maps, "", ""},
			{"GET", maps + "?limit=1", "", ""},
			{"POST", maps, body("b", "1"), ""},
			{"PUT", maps + "/a", body("a", "2"), ""},
			{"PATCH", maps + "/a", `{"data":{"k":"2"}}`, "application/merge-patch+json"},
			{"PATCH", maps + "/a?fieldManager=x", body("a", "2"), "application/apply-patch+yaml"},
			{"DELETE", maps + "/a", "", ""},
			{"DELETE", maps, "", ""},
			{"GET", maps + "?watch=1&timeoutSeconds=5", "", ""},
			{"GET", "/apis/apps/v1/deployments?timeout=2s", "", ""}, // they were not requested before, so there is no cache of them
			{"POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`, ""},
			{"POST", "/api/v1/namespaces/default/services", `{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":1}]}}`, ""},
		} {
			h := headers
			if r.contentType != "" {
				h = append(h[:len(h):len(h)], "Content-Type: "+r.contentType)
			}
			expectUnavailable(w, r.method, r.path, r.body, h)
		}
		w.must(200, "GET", maps+"/a?resourceVersion=0", "", headers...) // any state is allowed, and the cache has one
		if code, text := w.do("GET", "/readyz", ""); code != 500 || !strings.Contains(text, "[-]etcd failed") {
			t.Errorf("/readyz returns %d %s", code, text)
		}
		unavailable.Store(false)
		if code, text := w.do("GET", "/readyz", ""); code != 200 {
			t.Errorf("/readyz returns %d %s although the store is available again", code, text)
		}
		for _, name := range []string{"configmaps:b", "services:s"} { // admission was the first to ask the store
			_, text := w.do("GET", "/apis/trace.proa.dev/v1/namespaces/default/traces/"+name, "")
			if !strings.Contains(text, `"hop":7,"hopName":"commit"`) || !strings.Contains(text, `"stuck":"failed at hop 7 (commit)`) {
				t.Errorf("the record of a request for which the store did not answer: %s", text)
			}
		}
		if got := fieldAt(w.must(200, "GET", maps+"/a", "", headers...), "data", "k"); got != "1" {
			t.Errorf("a refused write happened: %v", got)
		}
		w.must(404, "GET", maps+"/b", "", headers...)
	}
	w.must(200, "PUT", maps+"/a", body("a", "3"))
	if got := <-watched; !strings.Contains(got, `"MODIFIED"`) || !strings.Contains(got, `"k":"3"`) {
		t.Errorf("the watch goes on with %s", got)
	}
	w.must(200, "DELETE", maps+"/a", "")
}

// TestStoreFull checks that a full store refuses writes with an error that says that they did not happen, and serves reads.
func TestStoreFull(t *testing.T) {
	var full atomic.Bool
	w := newHTTPClient(t, proatest.Start(t, func(c *run.Config) {
		c.StoreHook = func(op, _ string) error {
			if full.Load() && op == "commit" {
				return kv.ErrFull
			}
			return nil
		}
	}))
	const maps = "/api/v1/namespaces/default/configmaps"
	const body = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	full.Store(true)
	code, text := w.do("POST", maps, body)
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "the write is refused: ") || strings.Contains(text, "unknown") {
		t.Errorf("got %d %s", code, text)
	}
	w.must(200, "GET", maps, "")
	full.Store(false)
	w.must(201, "POST", maps, body)
}

// expectUnavailable checks that a request gets the 503 of a server whose store does not answer.
func expectUnavailable(w *httpClient, method, path, body string, headers []string) {
	w.Helper()
	code, text, head := w.doWithHeader(method, path, body, headers...)
	if code != http.StatusServiceUnavailable || head.Get("Retry-After") != "" ||
		!strings.Contains(text, `"reason":"`+string(metav1.StatusReasonServiceUnavailable)+`"`) ||
		!strings.Contains(text, "the store is not available") {
		w.Errorf("%s %s %s: got %d, Retry-After %q: %.400s", method, path, headers, code, head.Get("Retry-After"), text)
	}
}

// openWatch opens a watch and returns a channel with its events as text. The watch ends with the test.
func openWatch(t *testing.T, w *httpClient, path string) <-chan string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.base+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	res, err := w.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = res.Body.Close() })
	events := make(chan string)
	go func() { // it ends with the connection
		defer close(events)
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			select {
			case events <- lines.Text():
			case <-t.Context().Done():
				return
			}
		}
	}()
	return events
}

// TestHealthCheckMetrics checks that /metrics/slis has the results of the checks that the health endpoints have made.
func TestHealthCheckMetrics(t *testing.T) {
	w := newHTTPClient(t, proatest.Start(t, proatest.Memory()))
	w.do("GET", "/readyz", "")
	w.do("GET", "/livez/ping", "")
	code, text := w.do("GET", "/metrics/slis", "")
	for _, want := range []string{`kubernetes_healthcheck{name="etcd",type="readyz"} 1`, `kubernetes_healthchecks_total{name="ping",status="success",type="livez"} `} {
		if code != 200 || !strings.Contains(text, want) {
			t.Errorf("%d, without %s:\n%s", code, want, text)
		}
	}
}
