package httpproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"proa.dev/internal/connlimit"
)

// serveSections starts a proxy with sections, with or without TLS, and returns its address.
func serveSections(t *testing.T, secure bool, sections ...Section) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l = connlimit.New(64, slog.New(slog.DiscardHandler)).Listener(l, "test", connlimit.Public)
	p := NewProxy(Config{HTTPPort: port, HTTPSPort: port})
	p.SwapSections(sections)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := p.ServeSections(ctx, l, secure); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
	})
	return l.Addr().String()
}

// namedTable returns a table with one rule, to a server that responds with its name and the URL.
func namedTable(t *testing.T, name string, rule Rule) *Table {
	t.Helper()
	s := startBackend(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, name, " ", r.Host, r.URL) })
	return tableTo(rule, s.URL)
}

// tableTo returns a table with one rule, to an endpoint.
func tableTo(rule Rule, url string) *Table {
	ref := Ref{Namespace: "ns", Service: "web", Protocol: HTTP}
	pool := NewPool(ref)
	pool.Set(addresses(url))
	if rule.Path == "" {
		rule.Path = "/"
	}
	rule.Backends = append(rule.Backends, Backend{Ref: ref, Weight: 1})
	return NewTable([]Rule{rule}, func(Ref) *Pool { return pool }).AnyDepth()
}

// TestMostSpecificSectionServes checks that a request belongs to the section with the most specific host, even if that has no
// rule for it.
func TestMostSpecificSectionServes(t *testing.T) {
	at := serveSections(t, false,
		Section{Table: namedTable(t, "all", Rule{})}, Section{Host: "*.example.com", Table: namedTable(t, "wild", Rule{})},
		Section{Host: "*.deep.example.com", Table: namedTable(t, "deep", Rule{})},
		Section{Host: "a.example.com", Table: namedTable(t, "exact", Rule{Match: Match{Path: "/only"}})})
	c := newClient(t)
	for host, want := range map[string]string{
		"other.org": "200 all", "x.example.com": "200 wild", "x.y.example.com": "200 wild", "x.deep.example.com": "200 deep",
		"A.EXAMPLE.COM": "404 there", "example.com": "200 all",
	} {
		code, body, _ := get(t, c, "http://"+at+"/", "Host: "+host)
		if got := fmt.Sprint(code, " ", body); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

// getWithServerName requests a page with one server name in the TLS handshake and another host in the request.
func getWithServerName(t *testing.T, at, name, host string) (int, string, error) {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, ServerName: name}, DisableKeepAlives: true}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	resp, err := tr.RoundTrip(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// TestSectionsByServerName serves HTTP, a TLS passthrough stream and a terminated stream on one port, by server name.
func TestSectionsByServerName(t *testing.T) {
	own := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "own TLS") }))
	defer own.Close()
	at := serveSections(t, true,
		Section{Host: "http.example.com", Table: namedTable(t, "http", Rule{}),
			Certificates: []*Certificate{certFor(t, "http.example.com")}},
		Section{Host: "second.example.com", Table: namedTable(t, "second", Rule{}),
			Certificates: []*Certificate{certFor(t, "second.example.com")}},
		Section{Host: "pass.example.com", Stream: true, Table: tableTo(Rule{Match: Match{Host: "pass.example.com"}}, own.URL)},
		Section{Host: "end.example.com", Stream: true, Table: namedTable(t, "ended", Rule{}),
			Certificates: []*Certificate{certFor(t, "end.example.com")}})
	for name, want := range map[string]string{"http.example.com": "http http.example.com/", "pass.example.com": "own TLS",
		"end.example.com": "ended end.example.com/"} {
		if code, body, err := getWithServerName(t, at, name, name); err != nil || code != 200 || body != want {
			t.Errorf("%s: %d %q %v", name, code, body, err)
		}
	}
	if code, _, err := getWithServerName(t, at, "http.example.com", "second.example.com"); err != nil ||
		code != http.StatusMisdirectedRequest {
		t.Errorf("a request for another section over this connection: %d %v", code, err)
	}
	if code, _, err := getWithServerName(t, at, "nobody.example.com", "nobody.example.com"); err == nil {
		t.Errorf("a server name of no section: %d", code)
	}
	plain, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	fmt.Fprint(plain, "GET / HTTP/1.1\r\nHost: http.example.com\r\n\r\n")
	if text, _ := io.ReadAll(plain); len(text) > 0 {
		t.Errorf("without TLS: %q", text)
	}
}

// TestRedirects checks the targets of redirects. %d stands for the port of the proxy.
func TestRedirects(t *testing.T) {
	for want, to := range map[string]Redirect{
		"302 http://a.example.com:%d/old/x?q=1":   {},
		"301 https://a.example.com/old/x?q=1":     {Scheme: "https", Code: 301},
		"302 http://b.example.com:8080/old/x?q=1": {Hostname: "b.example.com", Port: 8080},
		"302 http://a.example.com:%d/new/x?q=1":   {Prefix: "/new"},
		"302 http://a.example.com:%d/x?q=1":       {Prefix: "/"},
		"302 http://a.example.com/all?q=1":        {FullPath: "/all", Port: 80},
	} {
		at := serveSections(t, false, Section{Table: namedTable(t, "x", Rule{Match: Match{Path: "/old"}, Filters: Filters{Redirect: &to}})})
		code, _, h := get(t, newClient(t), "http://"+at+"/old/x?q=1", "Host: a.example.com")
		_, port, _ := net.SplitHostPort(at)
		if got := fmt.Sprint(code, " ", h.Get("Location")); got != strings.Replace(want, "%d", port, 1) {
			t.Errorf("%+v: %s, want %s", to, got, want)
		}
	}
}

// TestBrokenBackendKeepsItsShare checks that the share of a missing backend is not given to others.
func TestBrokenBackendKeepsItsShare(t *testing.T) {
	at := serveSections(t, false, Section{Table: namedTable(t, "good", Rule{Backends: []Backend{{Broken: true, Weight: 1}}})})
	codes := map[int]int{}
	for range 100 {
		code, _, _ := get(t, newClient(t), "http://"+at+"/")
		codes[code]++
	}
	if codes[200] == 0 || codes[500] == 0 || codes[200]+codes[500] != 100 {
		t.Errorf("responses by code: %v", codes)
	}
	at = serveSections(t, false, Section{Table: NewTable([]Rule{{Match: Match{Path: "/"}, Refusal: 500}}, nil)})
	if code, _, _ := get(t, newClient(t), "http://"+at+"/"); code != 500 {
		t.Errorf("without any backend: %d", code)
	}
}

// TestRetries checks that a request is retried as often as the rule says, and a request with a body never.
func TestRetries(t *testing.T) {
	var requests atomic.Int32
	s := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) < 3 || r.Method == http.MethodPost {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	for attempts, want := range map[int]int{1: 503, 2: 200} {
		requests.Store(0)
		retry := &Retry{Codes: []int{503}, Attempts: attempts}
		at := serveSections(t, false, Section{Table: tableTo(Rule{Filters: Filters{Retry: retry}}, s.URL)})
		if code, _, _ := get(t, newClient(t), "http://"+at+"/"); code != want {
			t.Errorf("%d attempts more: %d", attempts, code)
		}
		requests.Store(0)
		resp, err := newClient(t).Post("http://"+at+"/", "text/plain", strings.NewReader("once"))
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if n := requests.Load(); n != 1 {
			t.Errorf("a request with a body was sent %d times", n)
		}
	}
}

// TestBackendTimeout checks that an endpoint that does not respond in time is given up.
func TestBackendTimeout(t *testing.T) {
	finished := make(chan struct{})
	s := startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-finished:
		case <-r.Context().Done():
		}
	})
	defer close(finished)
	at := serveSections(t, false, Section{Table: tableTo(Rule{Filters: Filters{BackendTimeout: 10 * time.Millisecond}}, s.URL)})
	if code, _, _ := get(t, newClient(t), "http://"+at+"/"); code != http.StatusGatewayTimeout {
		t.Errorf("the response is %d", code)
	}
}

// TestMirror checks that a mirror gets the same request, without forwarding headers of the client, and that its
// response does not matter.
func TestMirror(t *testing.T) {
	got := make(chan string, 1)
	mirrorServer := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprint(r.Method, " ", r.Host, r.URL.Path, " ", string(body), r.Header["X-Forwarded-For"], r.Header["X-Real-Ip"],
			r.Header["X-Forwarded-Host"], r.Header["Forwarded"], r.Header["X-Hop"], r.Header["Proxy"])
		w.WriteHeader(http.StatusTeapot)
	})
	main := startBackend(t, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	ref, mirror := Ref{Service: "main", Protocol: HTTP}, Ref{Service: "mirror", Protocol: HTTP}
	pools := map[Ref]*Pool{ref: NewPool(ref), mirror: NewPool(mirror)}
	pools[ref].Set(addresses(main.URL))
	pools[mirror].Set(addresses(mirrorServer.URL))
	table := NewTable([]Rule{{
		Match: Match{Path: "/"}, Backends: []Backend{{Ref: ref, Weight: 1}},
		Filters: Filters{Mirrors: []Mirror{{Ref: mirror, Numerator: 1, Denominator: 1}, {Ref: mirror, Denominator: 1}}},
	}}, func(r Ref) *Pool { return pools[r] })
	at := serveSections(t, false, Section{Table: table})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+at+"/p", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"X-Forwarded-For", "X-Real-Ip", "X-Forwarded-Host", "Forwarded", "X-Hop", "Proxy"} {
		req.Header.Set(name, "6.6.6.6")
	}
	req.Header.Set("Connection", "X-Hop")
	resp, err := newClient(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != "body" || resp.StatusCode != 200 {
		t.Errorf("the client gets %d %q %v", resp.StatusCode, body, err)
	}
	if text := <-got; text != "POST "+at+"/p body[127.0.0.1] [127.0.0.1] ["+at+"] [] [] []" {
		t.Errorf("the mirror gets %q", text)
	}
}

// TestCORS checks which origins may use responses.
func TestCORS(t *testing.T) {
	c := &CORS{Origins: []string{"https://a.example.com", "https://*.b.example.com"}}
	for origin, want := range map[string]bool{
		"https://a.example.com": true, "http://a.example.com": false, "https://x.b.example.com": true, "https://x.y.b.example.com": true,
		"https://b.example.com":     false,
		"https://evilb.example.com": false, "https://x.b.example.com:8443": false, "https://a.example.com.evil.org": false, "null": false,
		"": false,
	} {
		if got := c.allows(origin); got != want {
			t.Errorf("%q is allowed: %t", origin, got)
		}
	}
	h := http.Header{"Access-Control-Allow-Origin": {"*"}}
	c.mark(h, "https://evil.org")
	if h.Get("Access-Control-Allow-Origin") != "" {
		t.Error("the header of the endpoint is passed on")
	}
}

// TestReadHelloRefusesOtherProtocols checks that connections that do not begin with a TLS ClientHello are refused.
func TestReadHelloRefusesOtherProtocols(t *testing.T) {
	for _, text := range []string{"", "GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\xff\xff", strings.Repeat("\x16\x03\x01\x40\x00", 5000)} {
		client, server := net.Pipe()
		go func() {
			_, _ = io.WriteString(client, text)
			_ = client.Close()
		}()
		if name, _, err := readHello(t.Context(), server); err == nil || errors.Is(err, errHelloRead) {
			t.Errorf("%.20q is for %q", text, name)
		}
		_ = server.Close()
	}
}

// TestIdleClientsMakeRoom checks that clients that send nothing, more than the listener may have, keep no other client
// out, with and without TLS.
func TestIdleClientsMakeRoom(t *testing.T) {
	plain := serveSections(t, false, Section{Table: namedTable(t, "web", Rule{})})
	secure := serveSections(t, true, Section{Host: "a.example.com", Table: namedTable(t, "web", Rule{}),
		Certificates: []*Certificate{certFor(t, "a.example.com")}})
	for range 40 {
		for _, at := range []string{plain, secure} {
			idle, err := net.Dial("tcp", at)
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Close()
		}
	}
	if code, _, _ := get(t, newClient(t), "http://"+plain+"/"); code != http.StatusOK {
		t.Errorf("without TLS: %d", code)
	}
	if code, _, err := getWithServerName(t, secure, "a.example.com", "a.example.com"); err != nil || code != http.StatusOK {
		t.Errorf("with TLS: %d %v", code, err)
	}
}
