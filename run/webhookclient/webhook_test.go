package webhookclient

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
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

// TestHostileWebhooks checks that a webhook which hangs, fails or answers without end costs a request one timeout and little memory, and
// that many requests share a bounded number of connections.
func TestHostileWebhooks(t *testing.T) {
	var open, most atomic.Int32
	for _, test := range []struct {
		what     string
		requests int
		serve    http.HandlerFunc
		want     string
	}{
		{"hangs", 2 * maxConnections, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, "deadline exceeded"},
		{"fails and hangs", 1, func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-time.After(50 * time.Millisecond):
				w.WriteHeader(http.StatusInternalServerError)
			}
		}, "answered 500"},
		{"answers without end", 1, func(w http.ResponseWriter, _ *http.Request) {
			for block := make([]byte, 1<<16); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, "answered more than 4194304 bytes"},
		{"many headers", 1, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, "headers exceeded"},
	} {
		t.Run(test.what, func(t *testing.T) {
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // a server sees that its client has gone when it has read the body
				test.serve(w, r)
			}))
			s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
				switch state {
				case http.StateNew:
					n := open.Add(1)
					for have := most.Load(); n > have && !most.CompareAndSwap(have, n); have = most.Load() {
						continue
					}
				case http.StateClosed:
					open.Add(-1)
				}
			}
			s.Start()
			defer s.Close()
			path := writeTempFile(t, "hook.yaml", kubeconfigHead+"clusters: [{name: c, cluster: {server: '"+s.URL+
				"'}}]\nusers: [{name: u, user: {}}]\n")
			h, err := Open(path, 300*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			for range test.requests {
				wg.Go(func() {
					if _, err := h.Post(t.Context(), []byte("question")); err == nil || !strings.Contains(err.Error(), test.want) &&
						!strings.Contains(err.Error(), "Client.Timeout") {
						t.Errorf("got %v, want %s", err, test.want)
					}
				})
			}
			wg.Wait()
		})
	}
	if most.Load() > maxConnections*3/2 { // the server may learn late that a connection was closed
		t.Errorf("%d connections at a time, want about %d", most.Load(), maxConnections)
	}
}
