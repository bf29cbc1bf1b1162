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

// web talks plain HTTP to a cluster, as a client that does not follow the rules.
type web struct {
	testing.TB
	*http.Client
	base string
}

// TestMain lets clients wait for a slow machine: by themselves they give a connection up on which nothing came for a
// while.
func TestMain(m *testing.M) {
	if err := os.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "0"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

func newWeb(t testing.TB, c *proatest.Cluster, change ...func(*rest.Config)) *web {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	for _, f := range change {
		f(config)
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return &web{t, h, config.Host}
}

// as makes the config of another user by impersonation.
func as(user string, groups ...string) func(*rest.Config) {
	return func(c *rest.Config) { c.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups} }
}

// do sends a request; headers are "Name: value".
func (w *web) do(method, path, body string, headers ...string) (int, string) {
	w.Helper()
	code, text, _ := w.full(method, path, body, headers...)
	return code, text
}

func (w *web) full(method, path, body string, headers ...string) (int, string, http.Header) {
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

// must expects a code and returns the body as a map.
func (w *web) must(want int, method, path, body string, headers ...string) map[string]any {
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

// status expects a failure and returns it.
func (w *web) status(want int, method, path, body string, headers ...string) *metav1.Status {
	w.Helper()
	code, text := w.do(method, path, body, headers...)
	st := &metav1.Status{}
	if err := json.Unmarshal([]byte(text), st); err != nil || code != want || int(st.Code) != want || st.Kind != "Status" {
		w.Fatalf("%s %s: got %d, want a Status of %d: %.600s", method, path, code, want, text)
	}
	return st
}

// at reads a path of keys in a decoded document.
func at(m any, keys ...string) any {
	for _, k := range keys {
		x, ok := m.(map[string]any)
		if !ok {
			return nil
		}
		m = x[k]
	}
	return m
}
