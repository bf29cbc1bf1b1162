package httpapi_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"proa.dev/proatest"
)

// httpClient sends HTTP requests to a cluster that a client library would not send.
type httpClient struct {
	testing.TB
	*http.Client
	base string
}

// TestMain makes HTTP/2 clients wait longer on slow machines: by default they give up a connection on which nothing was
// received for a while.
func TestMain(m *testing.M) {
	if err := os.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func newHTTPClient(t testing.TB, c *proatest.Cluster, change ...func(*rest.Config)) *httpClient {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	for _, f := range change {
		f(config)
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &httpClient{t, h, config.Host}
}

// impersonate returns a function that changes a configuration to impersonate a user.
func impersonate(user string, groups ...string) func(*rest.Config) {
	return func(c *rest.Config) { c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups} }
}

// do sends a request; headers are "Name: value".
func (w *httpClient) do(method, path, body string, headers ...string) (int, string) {
	w.Helper()
	code, text, _ := w.doWithHeader(method, path, body, headers...)
	return code, text
}

func (w *httpClient) doWithHeader(method, path, body string, headers ...string) (int, string, http.Header) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), method, w.base+path, strings.NewReader(body))
	if err != nil {
		w.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		req.Header.Set(k, v)
	}
	res, err := w.Do(req)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		w.Fatalf("%s %s: %v", method, path, err)
	}
	return res.StatusCode, string(b), res.Header
}

// must checks the code of the response and returns its body as a map.
func (w *httpClient) must(want int, method, path, body string, headers ...string) map[string]any {
	w.Helper()
	code, text := w.do(method, path, body, headers...)
	if code != want {
		w.Fatalf("%s %s: got %d, want %d: %.600s", method, path, code, want, text)
	}
	m := map[string]any{}
	if err := json.NewDecoder(bytes.NewReader([]byte(text))).Decode(&m); err != nil && strings.HasPrefix(text, "{") {
		w.Fatalf("%s %s: %v in %.200s", method, path, err, text)
	}
	return m
}

// status checks that a request fails with a code, and returns the Status.
func (w *httpClient) status(want int, method, path, body string, headers ...string) *metav1.Status {
	w.Helper()
	code, text := w.do(method, path, body, headers...)
	st := &metav1.Status{}
	if err := json.Unmarshal([]byte(text), st); err != nil || code != want || int(st.Code) != want || st.Kind != "Status" {
		w.Fatalf("%s %s: got %d, want a Status of %d: %.600s", method, path, code, want, text)
	}
	return st
}

// fieldAt returns the value at a path of keys in a decoded document.
func fieldAt(m any, keys ...string) any {
	for _, k := range keys {
		x, ok := m.(map[string]any)
		if !ok {
			return nil
		}
		m = x[k]
	}
	return m
}
