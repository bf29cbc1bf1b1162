package httpproxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/websocket"
)

// testProxy is a proxy that listens on an HTTP and an HTTPS port, with the pools of its backends.
type testProxy struct {
	t           *testing.T
	proxy       *Proxy
	pools       map[Ref]*Pool
	http, https string // addresses
	servers     []*http.Server
}

func newTestProxy(t *testing.T, rules ...Rule) *testProxy {
	t.Helper()
	f := &testProxy{t: t, pools: map[Ref]*Pool{}}
	listen := func() (net.Listener, string, int) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l, l.Addr().String(), l.Addr().(*net.TCPAddr).Port
	}
	plain, plainAddr, plainPort := listen()
	secure, secureAddr, securePort := listen()
	f.http, f.https = plainAddr, secureAddr
	f.proxy = NewProxy(Config{HTTPPort: plainPort, HTTPSPort: securePort, Metrics: NewMetrics("ingress"),
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))})
	f.setRules(rules...)
	var wg sync.WaitGroup
	a, b := f.proxy.Server(), f.proxy.Server()
	f.servers = []*http.Server{a, b}
	wg.Go(func() { _ = a.Serve(plain) })
	wg.Go(func() { _ = b.ServeTLS(secure, "", "") })
	t.Cleanup(func() {
		_, _ = a.Close(), b.Close()
		wg.Wait()
		for _, p := range f.pools {
			p.Set(nil)
		}
	})
	return f
}

func (f *testProxy) setRules(rules ...Rule) {
	f.proxy.Swap(NewTable(rules, f.pool), nil)
}

func (f *testProxy) pool(r Ref) *Pool {
	if f.pools[r] == nil {
		f.pools[r] = NewPool(r)
	}
	return f.pools[r]
}

// routeAllTo sets one rule, which sends all requests to the endpoints.
func (f *testProxy) routeAllTo(protocol Protocol, filters Filters, endpoints ...string) {
	f.t.Helper()
	ref := Ref{Namespace: "ns", Service: "web", Number: 80, Protocol: protocol}
	f.pool(ref).Set(addresses(endpoints...))
	f.setRules(Rule{Match: Match{Path: "/"}, Owner: Owner{"ns", "web"}, Backends: []Backend{{Ref: ref, Weight: 1}}, Filters: filters})
}

func addresses(urls ...string) (out []netip.AddrPort) {
	for _, u := range urls {
		u = strings.TrimPrefix(strings.TrimPrefix(u, "https://"), "http://")
		out = append(out, netip.MustParseAddrPort(u))
	}
	return out
}

// startBackend starts an HTTP server that runs until the end of the test.
func startBackend(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// newClient returns a client that does not verify certificates.
func newClient(t *testing.T) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func get(t *testing.T, c *http.Client, url string, header ...string) (int, string, http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range header {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			r.Host = value
		}
		r.Header.Add(name, value)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

// TestForwardingHeaders checks which forwarding headers an endpoint gets, and that clients cannot set them.
func TestForwardingHeaders(t *testing.T) {
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "X-Secret")
		w.Header().Set("X-Secret", "of this connection")
		w.Header().Set("Keep-Alive", "timeout=5")
		fmt.Fprintf(w, "%s %s host=%s\n", r.Method, r.RequestURI, r.Host)
		for _, name := range []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "X-Real-Ip",
			"Forwarded", "Proxy", "X-Hop", "Keep-Alive", "Te", "User-Agent", "Accept-Encoding"} {
			fmt.Fprintf(w, "%s=%q\n", name, r.Header[name])
		}
	})
	f := newTestProxy(t)
	f.routeAllTo(HTTP, Filters{}, b.URL)
	for _, scheme := range []string{"http", "https"} {
		at := map[string]string{"http": f.http, "https": f.https}[scheme]
		_, port, _ := net.SplitHostPort(at)
		forged := []string{
			"Host: Some.Example.com", "User-Agent: ", "X-Forwarded-For: 6.6.6.6", "X-Forwarded-Proto: ftp", "X-Forwarded-Host: evil",
			"X-Forwarded-Port: 1",
			"X-Real-Ip: 6.6.6.6", "Forwarded: for=6.6.6.6", "Proxy: http://evil",
		}
		if scheme == "http" {
			forged = append(forged, "X-Hop: yes", "Connection: X-Hop, X-Forwarded-For, X-Real-Ip", "Te: trailers, deflate")
		}
		code, body, header := get(t, newClient(t), scheme+"://"+at+"/a%2Fb//c?x=1;y&z=%zz", forged...)
		want := "GET /a%2Fb//c?x=1;y&z=%zz host=Some.Example.com\nX-Forwarded-For=[\"127.0.0.1\"]\nX-Forwarded-Proto=[\"" + scheme + "\"]\n" +
			"X-Forwarded-Host=[\"Some.Example.com\"]\nX-Forwarded-Port=[\"" + port +
			"\"]\nX-Real-Ip=[\"127.0.0.1\"]\nForwarded=[]\nProxy=[]\n"
		if code != 200 || !strings.HasPrefix(body, want) {
			t.Errorf("%s: %d\n%s", scheme, code, body)
		}
		for _, name := range []string{"X-Secret", "Keep-Alive"} {
			if header.Get(name) != "" {
				t.Errorf("%s: the response has the hop-by-hop header %s of the endpoint", scheme, name)
			}
		}
		for _, line := range []string{"X-Hop=[]", "Keep-Alive=[]", "Te=[\"trailers\"]", "User-Agent=[]", "Accept-Encoding=[]"} {
			if scheme == "http" && !strings.Contains(body, line+"\n") {
				t.Errorf("no line %s in\n%s", line, body)
			}
		}
	}
}

func TestResponsesOfTheProxy(t *testing.T) {
	var seen atomic.Int64
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		seen.Store(n)
		if err == nil {
			fmt.Fprintln(w, r.RequestURI)
		}
	})
	closed := httptest.NewServer(nil)
	closed.Close()
	ref := func(name string, p Protocol) Ref {
		return Ref{Namespace: "ns", Service: name, Number: 80, Protocol: p}
	}
	rule := func(path, to string, filters Filters) Rule {
		return Rule{Match: Match{Path: path}, Backends: []Backend{{Ref: ref(to, HTTP), Weight: 1}}, Filters: filters}
	}
	f := newTestProxy(t)
	f.pool(ref("web", HTTP)).Set(addresses(b.URL))
	f.pool(ref("dead", HTTP)).Set(addresses(closed.URL))
	f.setRules(rule("/web", "web", Filters{}), rule("/none", "none", Filters{}), rule("/dead", "dead", Filters{}),
		Rule{Match: Match{Path: "/nothing"}},
		rule("/tls", "web", Filters{ToTLS: true}), rule("/small", "web", Filters{MaxBody: 10}),
		rule("/old", "web", Filters{Rewrite: "/new"}))
	c := newClient(t)
	for _, x := range []struct {
		path string
		code int
		body string
	}{
		{"/web/x", 200, "/web/x\n"},
		{"/other", 404, noRule},
		{"/none", 503, noEndpoint},
		{"/nothing", 503, noEndpoint},
		{"/dead", 502, "the backend did not answer\n"},
		{"/old/a%2Fb/?q", 200, "/new/a%2Fb/?q\n"},
		{"/web/../tls", 400, "the path is not one that can be served\n"},
		{"/web/%2e%2e/tls", 400, "the path is not one that can be served\n"},
	} {
		code, body, header := get(t, c, "http://"+f.http+x.path)
		if code != x.code || body != x.body {
			t.Errorf("%s: %d %q, want %d %q", x.path, code, body, x.code, x.body)
		}
		if code >= 400 && header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: browsers may guess the content type", x.path)
		}
	}
	_, port, _ := net.SplitHostPort(f.https)
	if code, _, h := get(t, c, "http://"+f.http+"/tls//a%2Fb?x=y", "Host: example.com:1234"); code != 308 ||
		h.Get("Location") != "https://example.com:"+port+"/tls//a%2Fb?x=y" {
		t.Errorf("%d to %s", code, h.Get("Location"))
	}
	if code, body, _ := get(t, c, "https://"+f.https+"/tls"); code != 200 || body != "/tls\n" {
		t.Errorf("with TLS: %d %s", code, body)
	}
	for _, x := range []struct {
		body io.Reader
		code int
	}{{strings.NewReader("0123456789"), 200}, {strings.NewReader("0123456789a"), 413}, {io.MultiReader(strings.NewReader("0123456789a")),
		413}, {io.MultiReader(strings.NewReader("01234")), 200}} {
		for _, at := range []string{"http://" + f.http, "https://" + f.https} {
			resp, err := c.Post(at+"/small", "text/plain", x.body)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != x.code {
				t.Errorf("a body of which 10 bytes are allowed: %d, want %d", resp.StatusCode, x.code)
			}
			if s, ok := x.body.(*strings.Reader); ok {
				_, _ = s.Seek(0, io.SeekStart)
			} else if x.code == 413 {
				x.body = io.MultiReader(strings.NewReader("0123456789a"))
			} else {
				x.body = io.MultiReader(strings.NewReader("01234"))
			}
		}
	}
}

// TestLargeBodies sends bodies larger than any buffer in both directions, also to an endpoint that responds before it
// has read everything.
func TestLargeBodies(t *testing.T) {
	const size = 64 << 20
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/count":
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, n)
		case "/refuse":
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("Content-Length", fmt.Sprint(size))
			_, _ = io.Copy(w, io.LimitReader(zeros{}, size))
		}
	})
	f := newTestProxy(t)
	f.routeAllTo(HTTP, Filters{}, b.URL)
	for _, at := range []string{"http://" + f.http, "https://" + f.https} {
		c := newClient(t)
		resp, err := c.Post(at+"/count", "", io.LimitReader(zeros{}, size))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(text) != fmt.Sprint(size) {
			t.Errorf("%s of %d bytes arrived", text, size)
		}
		resp, err = c.Get(at + "/get")
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if n != size || err != nil {
			t.Errorf("%d of %d bytes came back: %v", n, size, err)
		}
		in, out := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/refuse", in)
		done := make(chan error, 1)
		go func() {
			resp, err := c.Do(r)
			if err == nil {
				resp.Body.Close()
				if resp.StatusCode != 403 {
					err = errors.New(resp.Status)
				}
			}
			done <- err
		}()
		_, _ = out.Write([]byte("the beginning"))
		if err := <-done; err != nil {
			t.Errorf("a response before the end of the request: %v", err)
		}
		out.Close()
	}
}

// zeros is an endless reader of zero bytes.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestExpectContinue checks that a body is requested only if the endpoint wants it.
func TestExpectContinue(t *testing.T) {
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/no" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		text, _ := io.ReadAll(r.Body)
		_, _ = w.Write(text)
	})
	f := newTestProxy(t)
	f.routeAllTo(HTTP, Filters{}, b.URL)
	for path, want := range map[string][]string{"/yes": {"HTTP/1.1 100 Continue", "HTTP/1.1 200 OK"},
		"/no": {"HTTP/1.1 401 Unauthorized"}} {
		conn, err := net.Dial("tcp", f.http)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", path)
		in := bufio.NewReader(conn)
		for i, line := range want {
			got, err := in.ReadString('\n')
			if err != nil || strings.TrimSpace(got) != line {
				t.Errorf("%s: %q %v, want %s", path, got, err, line)
			}
			if i == 0 && len(want) == 2 {
				_, _ = in.ReadString('\n')
				fmt.Fprint(conn, "hello")
			}
		}
		conn.Close()
	}
}

// TestStreaming checks that data of an endpoint is forwarded at once: events, and both directions of HTTP/2.
func TestStreaming(t *testing.T) {
	next := make(chan string)
	b := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/events" {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			for text := range next {
				fmt.Fprintf(w, "data: %s\n\n", text)
				_ = http.NewResponseController(w).Flush()
			}
			return
		}
		rc := http.NewResponseController(w)
		_ = rc.EnableFullDuplex()
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(200)
		_ = rc.Flush()
		in, n := bufio.NewReader(r.Body), 0
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				break
			}
			n += len(line)
			fmt.Fprint(w, strings.ToUpper(line))
			_ = rc.Flush()
		}
		w.Header().Set("X-Sum", fmt.Sprint(n, " ", r.Trailer.Get("X-End")))
	})
	f := newTestProxy(t)
	f.routeAllTo(HTTP, Filters{}, b.URL)
	c := newClient(t)
	resp, err := c.Get("http://" + f.http + "/events")
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(resp.Body)
	for i := range 3 {
		next <- fmt.Sprint(i)
		line, err := in.ReadString('\n')
		if _, _ = in.ReadString('\n'); err != nil || line != fmt.Sprintf("data: %d\n", i) {
			t.Errorf("%q %v", line, err)
		}
	}
	close(next)
	resp.Body.Close()

	for _, at := range []string{"http://" + f.http, "https://" + f.https} {
		body, out := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, at+"/both", body)
		r.Trailer = http.Header{"X-End": {"bye"}}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(resp.Body)
		for _, word := range []string{"one\n", "two\n"} {
			_, _ = io.WriteString(out, word)
			if got, err := in.ReadString('\n'); got != strings.ToUpper(word) {
				t.Errorf("%q %v", got, err)
			}
		}
		out.Close()
		_, _ = io.Copy(io.Discard, in)
		if got := resp.Trailer.Get("X-Sum"); got != "8 bye" {
			t.Errorf("%s: the trailer is %q", resp.Proto, got)
		}
		resp.Body.Close()
	}
}

func TestWebSocket(t *testing.T) {
	plain := httptest.NewServer(websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }))
	secure := httptest.NewTLSServer(websocket.Handler(func(c *websocket.Conn) { _, _ = io.Copy(c, c) }))
	defer plain.Close()
	defer secure.Close()
	for _, x := range []struct {
		protocol Protocol
		url      string
	}{{HTTP, plain.URL}, {HTTPS, secure.URL}} {
		f := newTestProxy(t)
		f.routeAllTo(x.protocol, Filters{}, x.url)
		for _, at := range []string{"ws://" + f.http, "wss://" + f.https} {
			config, err := websocket.NewConfig(at+"/echo", "http://origin.example.com")
			if err != nil {
				t.Fatal(err)
			}
			config.TlsConfig = &tls.Config{InsecureSkipVerify: true}
			c, err := websocket.DialConfig(config)
			if err != nil {
				t.Fatal(x.protocol, at, err)
			}
			for i := range 3 {
				want := fmt.Sprint("word ", i)
				var got string
				if err := errors.Join(websocket.Message.Send(c, want), websocket.Message.Receive(c, &got)); err != nil || got != want {
					t.Errorf("%q %v", got, err)
				}
			}
			c.Close()
		}
	}
}

// TestHTTP2 sends requests over HTTP/2 with and without TLS, and checks the protocol that the endpoint sees.
func TestHTTP2(t *testing.T) {
	protoHandler := func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Proto) }
	http1 := startBackend(t, protoHandler)
	h2c := httptest.NewUnstartedServer(http.HandlerFunc(protoHandler))
	h2c.Config.Protocols = new(http.Protocols)
	h2c.Config.Protocols.SetUnencryptedHTTP2(true)
	h2c.Start()
	defer h2c.Close()
	secure := httptest.NewUnstartedServer(http.HandlerFunc(protoHandler))
	secure.EnableHTTP2 = true
	secure.StartTLS()
	defer secure.Close()
	h2cOnly := &http.Transport{Protocols: new(http.Protocols)}
	h2cOnly.Protocols.SetUnencryptedHTTP2(true)
	defer h2cOnly.CloseIdleConnections()
	for _, x := range []struct {
		protocol Protocol
		url      string
		want     string
	}{{HTTP, http1.URL, "HTTP/1.1"}, {H2C, h2c.URL, "HTTP/2.0"}, {GRPC, h2c.URL, "HTTP/2.0"}, {HTTPS, secure.URL, "HTTP/2.0"}} {
		f := newTestProxy(t)
		f.routeAllTo(x.protocol, Filters{}, x.url)
		for _, ask := range []struct {
			client *http.Client
			url    string
			proto  int
		}{
			{newClient(t), "http://" + f.http, 1}, {newClient(t), "https://" + f.https, 2},
			{&http.Client{Transport: h2cOnly}, "http://" + f.http, 2},
		} {
			resp, err := ask.client.Get(ask.url)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if string(body) != x.want || resp.ProtoMajor != ask.proto {
				t.Errorf("%s: the client used HTTP/%d, the endpoint %s, want HTTP/%d and %s", x.protocol, resp.ProtoMajor, body, ask.proto,
					x.want)
			}
		}
	}
}

// TestAnotherEndpointIsTriedIfUnreachable checks that a second endpoint is tried only if the first could not be reached.
func TestAnotherEndpointIsTriedIfUnreachable(t *testing.T) {
	var got atomic.Int64
	good := startBackend(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Add(1)
		fmt.Fprint(w, n)
	})
	var broken atomic.Int64
	breaks := startBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		broken.Add(1)
		panic(http.ErrAbortHandler)
	})
	gone := httptest.NewServer(nil)
	gone.Close()
	notTLS, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer notTLS.Close()
	go func() {
		for {
			c, err := notTLS.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	secure := httptest.NewTLSServer(good.Config.Handler)
	defer secure.Close()
	h2c := httptest.NewUnstartedServer(good.Config.Handler)
	h2c.Config.Protocols = new(http.Protocols)
	h2c.Config.Protocols.SetUnencryptedHTTP2(true)
	h2c.Start()
	defer h2c.Close()
	for _, x := range []struct {
		protocol  Protocol
		endpoints []string
	}{{HTTP, []string{gone.URL, good.URL}}, {H2C, []string{gone.URL, h2c.URL}}, {HTTPS,
		[]string{"http://" + notTLS.Addr().String(), secure.URL}}} {
		f := newTestProxy(t)
		for range 20 {
			f.pools = map[Ref]*Pool{} // new pools, which do not know yet which endpoints cannot be reached
			f.routeAllTo(x.protocol, Filters{}, x.endpoints...)
			resp, err := newClient(t).Post("http://"+f.http, "", strings.NewReader("hello"))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode != 200 || string(body) != "5" {
				t.Fatalf("%s: %s %s", x.protocol, resp.Status, body)
			}
			for _, p := range f.pools {
				p.Set(nil)
			}
		}
	}
	f := newTestProxy(t)
	f.routeAllTo(HTTP, Filters{}, breaks.URL, good.URL)
	got.Store(0)
	bad := 0
	for range 10 {
		resp, err := newClient(t).Post("http://"+f.http, "", strings.NewReader("hello"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusBadGateway {
			bad++
		}
	}
	if bad != 5 || broken.Load() != 5 || got.Load() != 5 {
		t.Errorf("of 10 requests %d failed, %d reached the endpoint that breaks and %d the other: a request must not be sent twice", bad, broken.Load(), got.Load())
	}
}

// TestPickSpreadsRequests checks that endpoints get equal shares, and busy ones less.
func TestPickSpreadsRequests(t *testing.T) {
	p := NewPool(Ref{Protocol: HTTP})
	p.Set(addresses("10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"))
	count := map[string]int{}
	for range 300 {
		count[p.pick("", nil).addr]++
	}
	if count["10.0.0.1:80"] != 100 || count["10.0.0.2:80"] != 100 {
		t.Errorf("300 requests went %v", count)
	}
	live := *p.live.Load()
	live[0].busy.Add(1)
	live[1].avoid()
	count = map[string]int{}
	for range 300 {
		count[p.pick("", nil).addr]++
	}
	if count["10.0.0.2:80"] != 0 || count["10.0.0.1:80"] >= count["10.0.0.3:80"] {
		t.Errorf("with the first busy and the second unreachable: %v", count)
	}
	if e := p.pick("", []*endpoint{live[0], live[2]}); e != live[1] {
		t.Error("an unreachable endpoint is not tried although there is no other")
	}
	if e := p.pick("", live); e != nil {
		t.Error("an endpoint is tried twice")
	}
}

// TestRolloutFailsNoRequest replaces all endpoints repeatedly under load, as a rollout does: no request may fail. Endpoints that stop
// gracefully finish their requests; of those that stop at once only idempotent requests can be repeated.
func TestRolloutFailsNoRequest(t *testing.T) {
	t.Run("graceful", func(t *testing.T) { testRollouts(t, true) })
	t.Run("at once", func(t *testing.T) { testRollouts(t, false) })
}

// testRollouts replaces the endpoints 20 times while 8 clients send requests.
func testRollouts(t *testing.T, graceful bool) {
	f := newTestProxy(t)
	type server struct {
		*http.Server
		addr string
	}
	var servers sync.WaitGroup
	start := func() server {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(w, r.Body)
		})}
		servers.Go(func() { _ = s.Serve(l) })
		return server{s, l.Addr().String()}
	}
	old := []server{start(), start()}
	f.routeAllTo(HTTP, Filters{}, old[0].addr, old[1].addr)
	pool := f.pools[Ref{Namespace: "ns", Service: "web", Number: 80, Protocol: HTTP}]
	ctx, stop := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	done := make(chan struct{})
	for i := range 8 {
		clients.Go(func() {
			c := newClient(t)
			url := "http://" + f.http
			if i%2 == 1 {
				url = "https://" + f.https
			}
			for ctx.Err() == nil {
				method, body := http.MethodGet, io.Reader(nil)
				if graceful && i%4 < 2 {
					method, body = http.MethodPost, strings.NewReader("hello")
				}
				r, _ := http.NewRequest(method, url, body)
				resp, err := c.Do(r)
				if err != nil {
					t.Errorf("%s: %v", method, err)
				} else {
					text, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != 200 || err != nil {
						t.Errorf("%s: %s %s %v", method, resp.Status, text, err)
					}
				}
				select {
				case done <- struct{}{}:
				case <-ctx.Done():
				}
			}
		})
	}
	for range 20 {
		next := []server{start(), start()}
		for range 50 {
			<-done
		}
		removed := *pool.live.Load()
		pool.Set(addresses(next[0].addr, next[1].addr))
		for _, e := range removed {
			for graceful && e.busy.Load() > 0 {
				<-done
			}
		}
		for _, s := range old {
			if err := s.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		old = next
	}
	stop()
	clients.Wait()
	for _, s := range old {
		s.Close()
	}
	servers.Wait()
}

// TestDrain checks that a removed endpoint finishes its requests, and that its connections are closed then.
func TestDrain(t *testing.T) {
	arrived, release := make(chan struct{}), make(chan struct{})
	var open sync.WaitGroup
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(arrived)
		<-release
		fmt.Fprint(w, "done")
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			open.Add(1)
		}
		if state == http.StateClosed {
			open.Done()
		}
	}
	s.Start()
	defer s.Close()
	f := newTestProxy(t)
	f.routeAllTo(HTTP, Filters{}, s.URL)
	got := make(chan string, 1)
	go func() {
		_, body, _ := get(t, newClient(t), "http://"+f.http)
		got <- body
	}()
	<-arrived
	for _, p := range f.pools {
		p.Set(nil)
	}
	close(release)
	if body := <-got; body != "done" {
		t.Errorf("the request that was being handled: %q", body)
	}
	open.Wait() // the proxy must close them, since the server keeps idle connections open
}
