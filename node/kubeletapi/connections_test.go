package kubeletapi

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"proa.dev/internal/connlimit"
)

// TestConnectionsDoNotLockOutUsers checks that more connections than the agent may hold, of clients that nobody knows and
// that come from the same address, keep no user out: neither handshakes that do not end, nor idle connections whose
// requests were refused.
func TestConnectionsDoNotLockOutUsers(t *testing.T) {
	r := newTestServer(t)
	r.server.Connections = connlimit.New(64, slog.New(slog.DiscardHandler))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	unused := httptest.NewTLSServer(http.NotFoundHandler())
	certificate := &unused.TLS.Certificates[0]
	unused.Close()
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		err := r.server.Listen(ctx, l, func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return certificate, nil })
		if err != nil {
			t.Error(err)
		}
	})
	at, insecure := l.Addr().String(), &tls.Config{InsecureSkipVerify: true}
	request := func(who string) (socket net.Conn, code int) {
		socket, err := tls.Dial("tcp", at, insecure)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
		fmt.Fprintf(socket, "GET /healthz HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer %s\r\n\r\n", who)
		resp, err := http.ReadResponse(bufio.NewReader(socket), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return socket, resp.StatusCode
	}
	user, code := request("all")
	if code != http.StatusOK {
		t.Fatalf("a user gets %d", code)
	}
	for range 80 {
		silent, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		if _, code := request("forged"); code != http.StatusUnauthorized {
			t.Fatalf("a forged token gets %d", code)
		}
	}
	if _, code := request("all"); code != http.StatusOK {
		t.Errorf("a new connection of a user gets %d", code)
	}
	fmt.Fprint(user, "GET /healthz HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer all\r\n\r\n")
	if line, err := bufio.NewReader(user).ReadString('\n'); err != nil || !strings.Contains(line, "200") {
		t.Errorf("the connection that was open before gets %q, %v", line, err)
	}
}

// TestStreamsAreBounded checks that a user cannot open more streams than half of those that the agent may have, and that
// other requests are served nevertheless.
func TestStreamsAreBounded(t *testing.T) {
	r := newTestServer(t)
	r.server.Connections = connlimit.New(64, slog.New(slog.DiscardHandler)) // 16 streams
	for range 8 {
		resp, err := http.DefaultClient.Do(followLogs(t, r.URL))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	if got := r.request("GET", "/containerLogs/ns/p/c?follow=true", "all"); !strings.HasPrefix(got, "429 too many streams") {
		t.Errorf("one more: %s", got)
	}
	if got := r.request("GET", "/healthz", "all"); got != "200 ok" {
		t.Errorf("another request: %s", got)
	}
}

// followLogs returns a request that follows the log of a container.
func followLogs(t *testing.T, url string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/containerLogs/ns/p/c?follow=true", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer all")
	return req
}
