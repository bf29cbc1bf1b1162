package extensionclient

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serve starts an HTTPS server on loopback and returns it with its certificate as a bundle.
func serve(t *testing.T, h http.HandlerFunc) (*httptest.Server, []byte) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func get(t *testing.T, c *Clients, e *Endpoint) string {
	t.Helper()
	client, at, err := c.Client(e)
	if err != nil {
		return err.Error()
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.String(), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(resp.StatusCode, " ", string(body))
}

func TestURL(t *testing.T) {
	s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto+" "+r.URL.Path) })
	broken := []byte(strings.Replace(string(ca), "A", "B", 1))
	c := New(Config{})
	for name, test := range map[string]struct {
		Endpoint
		want string
	}{
		"trusted":       {Endpoint{URL: s.URL + "/x", CABundle: ca}, "200 HTTP/1.1 /x"},
		"system roots":  {Endpoint{URL: s.URL}, "certificate signed by unknown authority"},
		"insecure":      {Endpoint{URL: s.URL + "/x", Insecure: true}, "200 HTTP/1.1 /x"},
		"broken bundle": {Endpoint{URL: s.URL, CABundle: broken}, "unable to parse bytes as PEM block"},
		"dots":          {Endpoint{URL: s.URL + "//a/./b/../c%2fd//", CABundle: ca}, "200 HTTP/1.1 /a/c/d"},
		"climbs":        {Endpoint{URL: s.URL + "/../../x", CABundle: ca}, "200 HTTP/1.1 /x"},
		"no path":       {Endpoint{URL: s.URL, CABundle: ca}, "200 HTTP/1.1 /"},
		"plain HTTP":    {Endpoint{URL: "http://localhost/x"}, `not with "http"`},
		"nothing":       {Endpoint{}, "must have either service or URL"},
	} {
		if got := get(t, c, &test.Endpoint); !strings.Contains(got, test.want) {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

// TestRedirectsAreNotFollowed checks that redirects are not followed.
func TestRedirectsAreNotFollowed(t *testing.T) {
	var called atomic.Int32
	target, _ := serve(t, func(http.ResponseWriter, *http.Request) { called.Add(1) })
	for _, code := range []int{301, 302, 303, 307, 308} {
		s, ca := serve(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, target.URL, code) })
		if got := get(t, New(Config{}), &Endpoint{URL: s.URL, CABundle: ca}); !strings.HasPrefix(got, fmt.Sprint(code)) {
			t.Errorf("%d: got %s", code, got)
		}
	}
	if called.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestService(t *testing.T) {
	var name atomic.Value
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.Host+r.URL.Path)
	}))
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		name.Store(h.ServerName)
		return nil, nil
	}}
	s.StartTLS()
	defer s.Close()
	var dialed []string
	c := New(Config{
		Resolve: func(_ context.Context, s Service) ([]Address, error) {
			if s.Port != 443 {
				return nil, fmt.Errorf("port %d", s.Port)
			}
			return []Address{{Host: "dead:1", Node: "n"}, {Host: "pod:1", Node: "n"}, {Host: "never"}}, nil
		},
		Dial: func(ctx context.Context, node, addr string) (net.Conn, error) {
			if dialed = append(dialed, node+" "+addr); addr == "dead:1" {
				return nil, errors.New("dead")
			}
			return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
		},
	})
	e := &Endpoint{Service: &Service{Namespace: "ns", Name: "hook", Path: "/a"}, Insecure: true}
	if got := get(t, c, e); got != "200 hook.ns.svc:443/a" {
		t.Error(got)
	}
	if got := name.Load(); got != "hook.ns.svc" {
		t.Errorf("server name %v", got)
	}
	e.Service.Path = "/b"
	if got := get(t, c, e); got != "200 hook.ns.svc:443/b" {
		t.Error(got)
	}
	e.Service.Path = "b//./x/../c/"
	if got := get(t, c, e); got != "200 hook.ns.svc:443/b/c" {
		t.Error(got)
	}
	if got := fmt.Sprint(dialed); got != "[n dead:1 n pod:1]" {
		t.Errorf("dialed %s: connections are used again, also for other paths", got)
	}
	// The certificate of the server has another name.
	e = &Endpoint{Service: &Service{Namespace: "ns", Name: "hook"},
		CABundle: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})}
	if got := get(t, c, e); !strings.Contains(got, "not hook.ns.svc") {
		t.Error(got)
	}
	e.Service.Port = 8443
	if got := get(t, c, e); !strings.Contains(got, "port 8443") {
		t.Error(got)
	}
	// A request for another host fails.
	transport, _, err := c.Transport(&Endpoint{Service: &Service{Namespace: "ns", Name: "hook"}, Insecure: true})
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://other.ns.svc:443/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "does not lead to other.ns.svc:443") {
		t.Errorf("a request to another host: %v", err)
	}
}

func TestUnusedTransportsAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{})
		send := func(host string) any {
			tr, _, err := c.Transport(&Endpoint{URL: "https://" + host})
			if err != nil {
				t.Fatal(err)
			}
			return tr
		}
		a := send("a")
		time.Sleep(unusedFor / 2)
		if send("a") != a {
			t.Error("a transport was made twice")
		}
		send("b")
		time.Sleep(unusedFor/2 + 2)
		send("a")
		time.Sleep(unusedFor / 2)
		if send("c"); len(c.transports) != 2 {
			t.Errorf("%d transports, want a and c", len(c.transports))
		}
		for i := range 2 * maxTransports {
			send(fmt.Sprint(i))
		}
		if len(c.transports) != maxTransports {
			t.Errorf("%d transports", len(c.transports))
		}
		c.Close()
		if len(c.transports) != 0 {
			t.Error("not closed")
		}
	})
}
