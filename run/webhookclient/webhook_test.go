package webhookclient

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeTempFile writes a text into a file in a temporary folder.
func writeTempFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const kubeconfigHead = "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: c, user: u}}]\n"

func TestWebhookClient(t *testing.T) {
	var seen []string
	codes := []int{500, 429, 200}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		seen = append(seen, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
		w.WriteHeader(codes[min(len(seen), len(codes))-1])
		_, _ = io.WriteString(w, "answer")
	}))
	defer s.Close()
	token := writeTempFile(t, "token", "secret\n")
	path := writeTempFile(t, "hook.yaml", kubeconfigHead+"clusters: [{name: c, cluster: {server: '"+s.URL+
		"/ask'}}]\nusers: [{name: u, user: {tokenFile: "+token+"}}]\n")
	h, err := Open(path, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := h.Post(t.Context(), []byte("question"))
	if err != nil || string(answer) != "answer" {
		t.Errorf("got %q, %v", answer, err)
	}
	want := "POST /ask Bearer secret question"
	if got := strings.Join(seen, "|"); got != want+"|"+want+"|"+want {
		t.Errorf("asked %s", got)
	}
	codes, seen = []int{403}, nil
	if _, err := h.Post(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "answered 403 Forbidden") || len(seen) != 1 {
		t.Errorf("a refused request was sent %d times: %v", len(seen), err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if _, err := h.Post(ctx, nil); err == nil {
		t.Error("a canceled request has an answer")
	}
}

func TestInvalidWebhookKubeconfig(t *testing.T) {
	cluster := "clusters: [{name: c, cluster: {server: 'https://a'}}]\n"
	for text, want := range map[string]string{
		"a: [":                   "did not find expected",
		"kind: Config":           "there is no current-context",
		"current-context: z\n":   `there is no context "z"`,
		kubeconfigHead:           `there is no cluster "c"`,
		kubeconfigHead + cluster: `there is no user "u"`,
		kubeconfigHead + "clusters: [{name: c, cluster: {server: a}}]\nusers: [{name: u, user: {}}]\n":                                            `"a" is not the URL of a server`,
		kubeconfigHead + "clusters: [{name: c, cluster: {server: 'https://a', certificate-authority: none.pem}}]\nusers: [{name: u, user: {}}]\n": "none.pem: no such file",
		kubeconfigHead + cluster + "users: [{name: u, user: {exec: {command: x}}}]\n":                                                             "the control plane starts no programs",
		kubeconfigHead + cluster + "users: [{name: u, user: {client-certificate-data: eA==}}]\n":                                                  "the client certificate: tls: failed to find any PEM data",
	} {
		if _, err := Open(writeTempFile(t, "hook.yaml", text), time.Second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}
