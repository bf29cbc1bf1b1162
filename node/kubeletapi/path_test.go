package kubeletapi

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestPathsAreCleanedBeforeAuthorization checks that permission and handler are looked up by the same path: a path that could be
// understood in two ways is rejected before authorization.
func TestPathsAreCleanedBeforeAuthorization(t *testing.T) {
	r := newTestServer(t)
	// A user with one permission, the path that it allows, and the method.
	for _, test := range []struct{ who, below, method string }{
		{"get:pods", "/pods", "GET"}, {"get:healthz", "/healthz", "GET"}, {"get:configz", "/configz", "GET"},
		{"get:stats", "/stats", "GET"},
		{"get:metrics", "/metrics", "GET"}, {"get:log", "/logs", "GET"}, {"get:proxy", "/containerLogs", "GET"},
		{"create:checkpoint", "/checkpoint", "POST"}, {"create:pods", "/pods", "POST"}, {"create:log", "/logs", "POST"},
	} {
		for _, form := range []string{
			"%s/../%s", "%s/%%2e%%2e/%s", "%s/.%%2E/%s", "%s%%2f..%%2f%s", "%s%%2F%%2e%%2e%%2F%s", "%s/..%%2f%s", "%s//../%s",
			"%s/x/../../%s", `%s\..\%s`, "%s%%5c..%%5c%s", "%s/./../%s",
			"%s;/../%s", "/%s/../%s", "%s/../.%%2f%s", "/.%s/..%%2f..%%2f%s",
		} {
			for _, to := range []string{"exec/ns/p/c?command=id&output=1", "attach/ns/p/c?output=1", "portForward/ns/p?port=80",
				"run/ns/p/c?cmd=ls", "containerLogs/ns/p/c", "configz"} {
				path := fmt.Sprintf(form, test.below, to)
				if got := sendRaw(t, r, test.who, test.method, path); !strings.HasPrefix(got, "HTTP/1.1 400 ") {
					t.Errorf("%s %s %s: %s", test.who, test.method, path, got)
				}
			}
		}
	}
	for path, want := range map[string]string{
		"//exec/ns/p/c": "400", "/%2fexec/ns/p/c": "400", "/%2e/exec/ns/p/c": "400", "/./exec/ns/p/c": "400", "/exec%2fns%2fp%2fc": "400",
		"/pods/":         "404",
		"/%65xec/ns/p/c": "403", "/exec/ns/p/c/": "403", "/exec": "403", // all are the same path, which needs another permission
		"/EXEC/ns/p/c": "404", "/Exec/ns/p/c": "404", "/exec./ns/p/c": "404", "/exec;x/ns/p/c": "404", "/exec%20/ns/p/c": "404",
		"/pods/%252e%252e/exec/ns/p/c": "404",
		"/healthz":                     "200", "/%68ealthz": "200",
	} {
		if got := sendRaw(t, r, "get:proxy", http.MethodGet, path); !strings.HasPrefix(got, "HTTP/1.1 "+want+" ") &&
			!strings.HasPrefix(got, "HTTP/1.1 "+want+"\r") {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if r.runtime.last != nil {
		t.Errorf("a command was run: %v", r.runtime.last)
	}
}

// sendRaw sends a request whose path is neither cleaned nor encoded, with a bearer token, and returns the raw response.
func sendRaw(t *testing.T, r *testServer, who, method, path string) string {
	t.Helper()
	conn, err := net.Dial("tcp", r.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn,
		method+" "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+who+
			"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(response)
}

// TestTokensAreNotLogged checks that the agent logs no credential of a client, even at the debug level.
func TestTokensAreNotLogged(t *testing.T) {
	r := newTestServer(t)
	var log bytes.Buffer
	r.server.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.Level(-100)}))
	r.Server.Config.ErrorLog = slog.NewLogLogger(r.server.Log.Handler(), slog.LevelDebug)
	for _, head := range []string{"Bearer forged", "Bearer secret" + strings.Repeat("x", maxToken), "Basic secret", "secret",
		"Bearer secret"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.URL+"/healthz?access_token=secret", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", head)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if log.Len() == 0 || strings.Contains(log.String(), "secret") {
		t.Error(log.String())
	}
}
