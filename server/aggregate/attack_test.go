package aggregate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// raw answers a request with bytes of its own, and notes what else comes over the same connection.
func raw(t *testing.T, answer string) (h http.HandlerFunc, more func() string) {
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
		rest, _ := io.ReadAll(both) // until this server ends the connection
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

// TestUpgradesThatServersRefuse: when an aggregated server does not upgrade a connection, nothing that the client sends after it may reach that
// server, where it would count as sent by this one.
func TestUpgradesThatServersRefuse(t *testing.T) {
	for name, test := range map[string]struct{ answer, want string }{
		"forbidden": {"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno", "HTTP/1.1 403 Forbidden"},
		"fine":      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 503 Service Unavailable"},
		"elsewhere": {"HTTP/1.1 307 Temporary Redirect\r\nLocation: https://192.0.2.1/\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 503 Service Unavailable"},
	} {
		h, more := raw(t, test.answer)
		w := newWorld(t, h)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", w.front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_, _ = fmt.Fprintf(conn, "GET %s/a/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n", flunders)
		_, _ = io.WriteString(conn, "GET /secret HTTP/1.1\r\nHost: x\r\nX-Remote-User: admin\r\n\r\n")
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil || !strings.HasPrefix(line, test.want) || strings.Contains(line, "192.0.2.1") {
			t.Errorf("%s: the client is told %q, %v; want %s", name, line, err, test.want)
		}
		_ = conn.Close()
		if got := more(); strings.Contains(got, "secret") {
			t.Errorf("%s: the server was sent %q over the refused connection", name, got)
		}
	}
}

// TestStreamsNobodyAskedFor: a server does not make a stream of a request that asked for none, and what it says before its answer is no answer.
func TestStreamsNobodyAskedFor(t *testing.T) {
	h, _ := raw(t, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
	if resp, body := newWorld(t, h).get(t, flunders, nil); resp.StatusCode < http.StatusInternalServerError {
		t.Errorf("got %d %q", resp.StatusCode, body)
	}
	h, _ = raw(t, strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: <https://192.0.2.1/>\r\nAudit-Id: forged\r\n\r\n", 3)+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	resp, body := newWorld(t, h).get(t, flunders, nil)
	if resp.StatusCode != http.StatusOK || body != "ok" || resp.Header.Get("Link") != "" || resp.Header.Get("Audit-Id") != "ours" {
		t.Errorf("got %d %q %v", resp.StatusCode, body, resp.Header)
	}
	h, _ = raw(t, "HTTP/1.1 200 OK\r\n"+strings.Repeat("X-A: "+strings.Repeat("x", 1000)+"\r\n", 1000)+"\r\n")
	if resp, body := newWorld(t, h).get(t, flunders, nil); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("headers without end: %d %.200q", resp.StatusCode, body)
	}
}
