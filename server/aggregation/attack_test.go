package aggregation

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// respondWith returns a handler that responds with given bytes, and a function that returns what else was received on the
// same connection.
func respondWith(t *testing.T, answer string) (h http.HandlerFunc, more func() string) {
	var mu sync.Mutex
	var got strings.Builder
	var done sync.WaitGroup
	h = func(rw http.ResponseWriter, req *http.Request) {
		if !strings.HasPrefix(req.URL.Path, flunders) {
			http.NotFound(rw, req)
			return
		}
		conn, both, err := rw.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		done.Add(1)
		defer done.Done()
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, answer)
		rest, _ := io.ReadAll(both) // until the API server closes the connection
		mu.Lock()
		defer mu.Unlock()
		got.Write(rest)
	}
	return h, func() string {
		done.Wait()
		mu.Lock()
		defer mu.Unlock()
		return got.String()
	}
}

// TestRefusedUpgrades checks that when an aggregated server does not upgrade a connection, nothing that the
// client sends afterwards reaches that server, which would take it for requests of this one.
func TestRefusedUpgrades(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"forbidden": {"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "HTTP/1.1 403 Forbidden"},
		"fine":      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 503 Service Unavailable"},
		"elsewhere": {"HTTP/1.1 307 Temporary Redirect\r\nLocation: https://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 503 Service Unavailable"},
	} {
		h, more := respondWith(t, test.answer)
		w := newAggregatorTest(t, h)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "GET %s/a/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", flunders)
		_, _ = io.WriteString(conn, "GET /secret HTTP/1.1\r\nHost: x\r\nX-Remote-User: admin\r\n\r\n")
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, test.want) || strings.Contains(line, "192.0.2.1") {
			t.Errorf("%s: the client got %q, %v; want %s", name, line, err, test.want)
		}
		_ = conn.Close()
		if got := more(); strings.Contains(got, "secret") {
			t.Errorf("%s: the server was sent %q over the refused connection", name, got)
		}
	}
}

// TestUnsolicitedUpgrades checks that a server cannot make a stream of a request that asked for none, and that
// informational responses are not forwarded.
func TestUnsolicitedUpgrades(t *testing.T) {
	h, _ := respondWith(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if resp, body := newAggregatorTest(t, h).get(t, flunders, nil); resp.StatusCode < http.StatusInternalServerError {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	h, _ = respondWith(t, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <https://192.0.2.1/>\r\nAudit-Id: forged\r\n\r\n",
		3)+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	resp, body := newAggregatorTest(t, h).get(t, flunders, nil)
	if resp.StatusCode != http.StatusOK || body != "ok" || resp.Header.Get("Link") != "" || resp.Header.Get("Audit-Id") != "ours" {
		t.Errorf("got %d %q %v", resp.StatusCode, body, resp.Header)
	}
	h, _ = respondWith(t, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: "+strings.Repeat("x", 1000)+"\r\n", 1000)+"\r\n")
	if resp, body := newAggregatorTest(t, h).get(t, flunders, nil); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("headers without end: %d %.200q", resp.StatusCode, body)
	}
}

// TestWaitingRequestsAreBounded checks that the number of requests that wait for a server is limited. Streams do not
// count.
func TestWaitingRequestsAreBounded(t *testing.T) {
	w := newAggregatorTest(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	send := func(ctx context.Context) int {
		rec := httptest.NewRecorder()
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, flunders, http.NoBody)
		w.Pass(rec, req, wardle, &user.DefaultInfo{Name: "alice"})
		return rec.Code
	}
	limited, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	waiting := &(*w.backends.Load())[wardle].inFlight
	waiting.Add(maxInFlight)
	if got := send(limited); got != http.StatusServiceUnavailable {
		t.Errorf("one request too many: %d", got)
	}
	if got := send(t.Context()); got != http.StatusOK {
		t.Errorf("a request without an end: %d", got)
	}
	waiting.Add(-1)
	if got := send(limited); got != http.StatusOK {
		t.Errorf("the last request that may wait: %d", got)
	}
	if got := waiting.Load(); got != maxInFlight-1 {
		t.Errorf("%d requests wait, want %d", got, maxInFlight-1)
	}
}
