package httpproxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// TestRequestSmuggling sends requests that servers parse differently over one connection, and checks which requests the
// endpoint sees.
func TestRequestSmuggling(t *testing.T) {
	const hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
	for name, text := range map[string]string{
		"both lengths":       "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
		"two lengths":        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\nhello" + hidden,
		"list of lengths":    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 50\r\n\r\nhello" + hidden,
		"plus":               "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello" + hidden,
		"unknown coding":     "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\nhello" + hidden,
		"two codings":        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n" + hidden,
		"coding with a tab":  "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\tchunked, gzip\r\n\r\n0\r\n\r\n" + hidden,
		"space before colon": "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\nhello" + hidden,
		"bare CR in header":  "POST / HTTP/1.1\r\nHost: a\r\nX: y\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nhello" + hidden,
		"null in header":     "GET / HTTP/1.1\r\nHost: a\r\nX: y\x00z\r\n\r\n" + hidden,
		"two hosts":          "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n" + hidden,
		"host with a path":   "GET / HTTP/1.1\r\nHost: a/../b\r\n\r\n" + hidden,
		"bad chunk":          "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;x\nhello\r\n-1\r\n\r\n" + hidden,
		"connect":            "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n",
		"space in path":      "GET /a HTTP/1.1 /b HTTP/1.1\r\nHost: a\r\n\r\n" + hidden,
	} {
		t.Run(name, func(t *testing.T) { // each with its own endpoint, which may receive a request late
			var mu sync.Mutex
			var seen []string
			b := startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				defer mu.Unlock()
				seen = append(seen, fmt.Sprintf("%s %s %q cl=%d te=%v", r.Method, r.RequestURI, body, r.ContentLength, r.TransferEncoding))
			})
			f := newTestProxy(t)
			f.routeAllTo(HTTP, Filters{}, b.URL)
			conn, err := net.Dial("tcp", f.http)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprint(conn, text)
			in := bufio.NewReader(conn)
			first, err := in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.(*net.TCPConn).CloseWrite() // not before there is a response: a client that has gone gets none
			rest, _ := io.ReadAll(in)
			back := append([]byte(first), rest...)
			conn.Close()
			mu.Lock()
			defer mu.Unlock()
			if slices.ContainsFunc(seen, func(s string) bool { return strings.Contains(s, "/hidden") }) {
				t.Errorf("%s: the endpoint saw %q; the client %q", name, seen, back)
			}
			if name != "both lengths" && !bytes.HasPrefix(back, []byte("HTTP/1.1 4")) && !bytes.HasPrefix(back, []byte("HTTP/1.1 501")) {
				t.Errorf("%s is not refused: %q; the endpoint saw %q", name, back, seen)
			}
			if name == "both lengths" && (len(seen) != 1 || !strings.Contains(seen[0], `"" cl=`)) {
				t.Errorf("%s: the endpoint saw %q", name, seen)
			}
		})
	}
}

// TestUpgradeProtocols checks that no client gets a connection to an endpoint over which it could bypass the rules.
func TestUpgradeProtocols(t *testing.T) {
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		protocol := r.Header.Get("Upgrade")
		if protocol == "" {
			fmt.Fprint(w, "no")
			return
		}
		w.Header().Set("Connection", "Upgrade")
		w.Header().Set("Upgrade", protocol)
		w.WriteHeader(http.StatusSwitchingProtocols)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			conn.Close()
		}
	})
	f := newTestProxy(t)
	f.routeAllTo(HTTP, Filters{}, b.URL)
	for protocol, want := range map[string]int{
		"websocket": 101, "SPDY/3.1": 101, "h2c": 200, "H2C": 200, "HTTP/2.0": 200, "TLS/1.2": 200, "websocket, h2c": 200,
		"websocket\r\nUpgrade: h2c": 200,
	} {
		conn, err := net.Dial("tcp", f.http)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /public HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nUpgrade: %s\r\n\r\n", protocol)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		conn.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %s, want %d", protocol, resp.Status, want)
		}
	}
}
