package dashboardproxy

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"

	"proa.dev/ui"
)

// fakeAPIServer is an HTTP server in place of an API server, and the transport to it. It sends each request that it gets to
// requests.
type fakeAPIServer struct {
	server   *httptest.Server
	requests chan *http.Request
}

func newFakeAPIServer(t *testing.T) *fakeAPIServer {
	c := &fakeAPIServer{requests: make(chan *http.Request, 16)}
	c.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c.requests <- req
		switch {
		case req.URL.Path == "/api/v1/missing":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","code":404,"message":"not here"}`)
		case isWebSocket(req):
			websocket.Server{Handler: func(ws *websocket.Conn) { _, _ = io.WriteString(ws, "hello") },
				Handshake: func(c *websocket.Config, _ *http.Request) error {
					c.Protocol = []string{"v5.channel.k8s.io"}
					return nil
				},
			}.ServeHTTP(w, req)
		default:
			w.Header().Set("Set-Cookie", "evil=1")
			w.Header().Set("Access-Control-Allow-Origin", "*")
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<script>alert(1)</script>")
		}
	}))
	t.Cleanup(c.server.Close)
	return c
}

// RoundTrip sends a request to the test server.
func (c *fakeAPIServer) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	at, err := url.Parse(c.server.URL)
	if err != nil {
		return nil, err
	}
	out.URL.Scheme, out.URL.Host = at.Scheme, at.Host
	return http.DefaultTransport.RoundTrip(out)
}

// browser is a client of the proxy with the cookies and the key of a session.
type browser struct {
	t      *testing.T
	proxy  *Proxy
	host   string
	cookie string
	key    string
}

// serve starts a proxy.
func serve(t *testing.T, c *fakeAPIServer, change func(*Config)) *browser {
	t.Helper()
	var listen net.ListenConfig
	l, err := listen.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Address: l.Addr().String(), Cluster: c, Server: "https://cluster.example", Namespace: "shop"}
	if change != nil {
		change(&config)
	}
	p, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: p, ReadHeaderTimeout: time.Minute}}
	s.Start()
	t.Cleanup(s.Close)
	return &browser{t: t, proxy: p, host: l.Addr().String()}
}

// do sends a request with the headers that the page sends, changed by change: an empty value removes a header.
func (b *browser) do(method, path, body string, change map[string]string) *http.Response {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, "http://"+b.host+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	key := b.key
	if key == "" {
		key = "1"
	}
	usual := map[string]string{keyHeader: key, "Origin": "http://" + b.host, "Cookie": b.cookie, "Sec-Fetch-Site": "same-origin"}
	for name, value := range usual {
		if with, changed := change[name]; changed {
			value = with
		}
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	if host, changed := change["Host"]; changed {
		req.Host = host
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// logIn logs in with the code.
func (b *browser) logIn(code string) int {
	b.t.Helper()
	resp := b.do("POST", sessionPath, fmt.Sprintf(`{"code":%q}`, code), nil)
	if resp.StatusCode == http.StatusOK {
		b.keepCookie(resp)
		var answer map[string]string
		if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
			b.t.Fatal(err)
		}
		b.key = answer["key"]
	}
	return resp.StatusCode
}

func (b *browser) keepCookie(resp *http.Response) {
	for _, c := range resp.Cookies() {
		if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			b.t.Errorf("the cookie %s can be read by scripts or sent by other sites", c.Name)
		}
		b.cookie = c.Name + "=" + c.Value
	}
}

func TestRequestsOfPageAreProxied(t *testing.T) {
	c := newFakeAPIServer(t)
	b := serve(t, c, nil)
	if code := b.logIn(b.proxy.Code()); code != http.StatusOK {
		t.Fatalf("the code was answered with %d", code)
	}
	resp := b.do("GET", "/api/v1/pods?limit=1", "", nil)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("a request of the page was answered with %d", resp.StatusCode)
	}
	got := <-c.requests
	if got.URL.RequestURI() != "/api/v1/pods?limit=1" {
		t.Errorf("the API server was asked for %s", got.URL.RequestURI())
	}
	for _, name := range []string{keyHeader, "Origin", "Referer"} {
		if got.Header.Get(name) != "" {
			t.Errorf("the API server got the header %s", name)
		}
	}
	// Answers of the API server are data: they must not set cookies or be a page of this origin.
	if resp.Header.Get("Set-Cookie") != "" || resp.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Error("the answer of the API server sets cookies or opens the origin")
	}
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "sandbox") {
		t.Errorf("an answer of the API server could run as a page: %q", csp)
	}
	if resp := b.do("DELETE", sessionPath, "", nil); resp.StatusCode != http.StatusOK {
		t.Errorf("logging out was answered with %d", resp.StatusCode)
	}
	if resp := b.do("GET", "/api/v1/pods", "", nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("after logging out a request was answered with %d", resp.StatusCode)
	}
}

func TestForeignRequestsAreRejected(t *testing.T) {
	c := newFakeAPIServer(t)
	b := serve(t, c, nil)
	b.logIn(b.proxy.Code())
	other := serve(t, c, nil) // another proxy on this host, whose cookie the browser sends, too
	other.logIn(other.proxy.Code())
	port := b.host[len("127.0.0.1:"):]
	local := map[string]string{"Host": "localhost:" + port, "Origin": "http://localhost:" + port}
	noOrigin := map[string]string{"Origin": "", "Sec-Fetch-Site": ""}
	foreign := map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}
	wrongValue := map[string]string{"Cookie": b.proxy.sessions.cookie + "=other"}
	for _, x := range []struct {
		name, method, path string
		change             map[string]string
		want               int
	}{
		{"another name (DNS rebinding)", "GET", "/api/v1/pods", map[string]string{"Host": "evil.example:80"}, http.StatusMisdirectedRequest},
		{"another name, the right port", "GET", ui.Path, map[string]string{"Host": "evil.example:" + port}, http.StatusMisdirectedRequest},
		{"another page's form (CSRF)", "POST", "/api/v1/namespaces", foreign, http.StatusForbidden},
		{"a page without an origin", "POST", "/api/v1/namespaces", map[string]string{"Origin": "null"}, http.StatusForbidden},
		{"no origin on a write", "DELETE", "/api/v1/namespaces/shop", noOrigin, http.StatusForbidden},
		{"another port of this machine", "GET", "/api", map[string]string{"Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
		{"another port, by fetch metadata", "GET", "/api", map[string]string{"Origin": "", "Sec-Fetch-Site": "same-site"}, http.StatusForbidden},
		{"a link: no key", "GET", "/api/v1/secrets", map[string]string{keyHeader: "", "Origin": ""}, http.StatusForbidden},
		{"the header, but not its key", "GET", "/api/v1/secrets", map[string]string{keyHeader: "1"}, http.StatusUnauthorized},
		{"a cookie that another port got", "GET", "/api/v1/secrets", map[string]string{keyHeader: "WRONG"}, http.StatusUnauthorized},
		{"the key without the cookie", "GET", "/api/v1/secrets", map[string]string{"Cookie": ""}, http.StatusUnauthorized},
		{"the key with another cookie", "GET", "/api/v1/secrets", wrongValue, http.StatusUnauthorized},
		{"the cookie of another proxy", "GET", "/api/v1/secrets", map[string]string{"Cookie": other.cookie}, http.StatusUnauthorized},
		{"what Pods serve would have our origin", "GET", "/api/v1/namespaces/a/pods/b/proxy/x", nil, http.StatusNotFound},
		{"what a Pod serves, encoded", "GET", "/api/v1/namespaces/a/pods/b%2fpro%78y/x", nil, http.StatusNotFound},
		{"what a Pod named proxy serves", "GET", "/api/v1/namespaces/proxy/pods/proxy/proxy", nil, http.StatusNotFound},
		{"what a Service serves", "POST", "/api/v1/namespaces/a/services/https:b:443/proxy/", nil, http.StatusNotFound},
		{"what a node serves", "GET", "/api/v1/nodes/a:10250/proxy/pods", nil, http.StatusNotFound},
		{"what a Pod serves, the former form", "GET", "/api/v1/proxy/namespaces/a/pods/b", nil, http.StatusNotFound},
		{"what a Pod serves, watched", "GET", "/api/v1/watch/namespaces/a/pods/b/proxy", nil, http.StatusNotFound},
		{"ports of a Pod", "POST", "/api/v1/namespaces/a/pods/b/portforward", nil, http.StatusNotFound},
		{"the name that is also ::1", "POST", "/api/v1/namespaces", local, http.StatusMisdirectedRequest},
		{"the name that is also ::1, reading", "GET", "/api/v1/secrets", local, http.StatusSeeOther},
		{"the name that is also ::1, a session", "POST", sessionPath, local, http.StatusMisdirectedRequest},
		{"the name that is also ::1, the ticket", "POST", enterPath, local, http.StatusMisdirectedRequest},
		{"an origin that is also ::1", "POST", "/api/v1/namespaces", map[string]string{"Origin": local["Origin"]}, http.StatusForbidden},
		{"metrics", "GET", "/metrics", nil, http.StatusNotFound},
		{"debugging", "GET", "/debug/pprof/profile", nil, http.StatusNotFound},
		{"a path that leads elsewhere", "GET", "/api/../metrics", nil, http.StatusNotFound},
		{"a path that leads elsewhere, encoded", "GET", "/api/%2e%2e/metrics", nil, http.StatusNotFound},
	} {
		t.Run(x.name, func(t *testing.T) {
			if got := b.do(x.method, x.path, "", x.change).StatusCode; got != x.want {
				t.Errorf("it was answered with %d, not with %d", got, x.want)
			}
			select {
			case req := <-c.requests:
				t.Errorf("the API server was asked for %s", req.URL)
			default:
			}
		})
	}
}

// TestLocalhostIsRedirected checks that a request to localhost is only redirected to 127.0.0.1.
func TestLocalhostIsRedirected(t *testing.T) {
	b := serve(t, newFakeAPIServer(t), nil)
	for _, path := range []string{"/", ui.Path, ui.Path + "app.js", sessionPath} {
		resp := b.do("GET", path, "", map[string]string{"Host": "localhost:" + b.host[len("127.0.0.1:"):]})
		if at := resp.Header.Get("Location"); resp.StatusCode != http.StatusSeeOther || at != "http://"+b.host+ui.Path {
			t.Errorf("%s was answered with %d to %q", path, resp.StatusCode, at)
		}
	}
}

// TestObjectsNamedLikeSubresources checks that objects and namespaces may be named proxy and portforward.
func TestObjectsNamedLikeSubresources(t *testing.T) {
	c := newFakeAPIServer(t)
	b := serve(t, c, nil)
	b.logIn(b.proxy.Code())
	for _, path := range []string{
		"/api/v1/namespaces/proxy", "/api/v1/namespaces/proxy/pods", "/api/v1/namespaces/portforward/pods/proxy",
		"/api/v1/namespaces/proxy/pods/portforward/log", "/api/v1/nodes/proxy", "/apis/apps/v1/namespaces/a/deployments/proxy",
		"/apis/apps/v1/namespaces/a/deployments/proxy/scale", "/apis/example.com/v1/proxy", "/apis/example.com/v1/namespaces/a/proxy/x",
		"/api/v1/namespaces/a/pods/b/exec", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1/watch",
	} {
		if got := b.do("GET", path, "", nil).StatusCode; got != http.StatusOK {
			t.Errorf("%s was answered with %d", path, got)
			continue
		}
		<-c.requests
	}
}

func TestLoginCodes(t *testing.T) {
	logins, lockings := 0, 0
	b := serve(t, newFakeAPIServer(t), func(c *Config) {
		c.LoggedIn, c.Locked = func() { logins++ }, func() { lockings++ }
	})
	code := b.proxy.Code()
	if len(code) != 8 {
		t.Errorf("the code %q has not eight digits", code)
	}
	// Pages of other origins cannot use up the attempts.
	for range 2 * maxWrongCodes {
		resp := b.do("POST", sessionPath, `{"code":"0"}`, map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": ""})
		if resp.StatusCode != http.StatusForbidden {
			t.Fatalf("a code of another page was answered with %d", resp.StatusCode)
		}
	}
	if got := b.logIn(code[:4] + " " + code[4:]); got != http.StatusOK || logins != 1 {
		t.Fatalf("the right code was answered with %d", got)
	}
	if got := b.logIn(code); got != http.StatusUnauthorized {
		t.Errorf("a code that was used was answered with %d", got)
	}
	for i := range maxWrongCodes - 2 {
		if got := b.logIn(fmt.Sprint("wrong", i)); got != http.StatusUnauthorized {
			t.Errorf("a wrong code was answered with %d", got)
		}
	}
	if got := b.logIn("wrong"); got != http.StatusForbidden || lockings != 1 {
		t.Errorf("the last try was answered with %d, and it was locked %d times", got, lockings)
	}
	if got := b.logIn(b.proxy.Code()); got != http.StatusForbidden {
		t.Errorf("after too many tries the right code was answered with %d", got)
	}
}

func TestLoginFile(t *testing.T) {
	b := serve(t, newFakeAPIServer(t), nil)
	file := b.proxy.LoginFile()
	if strings.Contains(file, b.proxy.Code()) {
		t.Error("the file has the code that is for typing")
	}
	_, ticket, _ := strings.Cut(file, `name="ticket" value="`)
	ticket, _, _ = strings.Cut(ticket, `"`)
	form := url.Values{"ticket": {ticket}}.Encode()
	enter := func(body, origin string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+b.host+enterPath, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", origin)
		resp, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	if got := enter(form, "https://evil.example").StatusCode; got != http.StatusForbidden {
		t.Errorf("a page with an origin got %d", got)
	}
	if got := enter("ticket=wrong", "null"); got.StatusCode != http.StatusSeeOther || got.Header.Get("Set-Cookie") != "" {
		t.Errorf("a wrong ticket got %d", got.StatusCode)
	}
	resp := enter(form, "null")
	body, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("the file got %d", resp.StatusCode)
	}
	b.keepCookie(resp)
	_, b.key, _ = strings.Cut(string(body), `name="key" content="`)
	b.key, _, _ = strings.Cut(b.key, `"`)
	if got := b.do("GET", "/api/v1/pods", "", nil).StatusCode; got != http.StatusOK {
		t.Errorf("the browser that opened the file is answered with %d", got)
	}
	if got := enter(form, "null").StatusCode; got != http.StatusSeeOther {
		t.Errorf("the ticket works twice: %d", got)
	}
}

// dial opens a WebSocket as the page would.
func (b *browser) dial(path, origin string, protocols ...string) (*websocket.Conn, error) {
	config, err := websocket.NewConfig("ws://"+b.host+path, origin)
	if err != nil {
		return nil, err
	}
	config.Protocol = protocols
	config.Header.Set("Cookie", b.cookie)
	return config.DialContext(b.t.Context())
}

func TestWebSockets(t *testing.T) {
	c := newFakeAPIServer(t)
	b := serve(t, c, nil)
	b.logIn(b.proxy.Code())
	own, key := "http://"+b.host, keyProtocolPrefix+b.key

	ws, err := b.dial("/api/v1/namespaces/a/pods/b/exec?command=sh", own, "v5.channel.k8s.io", key)
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	var got string
	if err := websocket.Message.Receive(ws, &got); err != nil || got != "hello" {
		t.Errorf("the shell printed %q, %v", got, err)
	}
	if req := <-c.requests; strings.Contains(fmt.Sprint(req.Header), b.key) {
		t.Error("the API server got the key")
	}

	accept := acceptProtocolPrefix + base64.RawURLEncoding.EncodeToString([]byte("application/json;as=Table"))
	stream := func(path string) (head streamHead, body string) {
		ws, err := b.dial(path, own, streamProtocol, accept, key)
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		var text string
		if err := websocket.Message.Receive(ws, &text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), &head); err != nil {
			t.Fatal(err)
		}
		for {
			var data []byte
			if websocket.Message.Receive(ws, &data) != nil {
				return head, body
			}
			body += string(data)
		}
	}
	if head, body := stream("/api/v1/pods?watch=1"); head.Code != http.StatusOK || body != "<script>alert(1)</script>" {
		t.Errorf("the stream has %d %q", head.Code, body)
	}
	if req := <-c.requests; req.Header.Get("Accept") != "application/json;as=Table" {
		t.Errorf("the stream accepts %q", req.Header.Get("Accept"))
	}
	if head, _ := stream("/api/v1/missing"); head.Code != http.StatusNotFound || !strings.Contains(head.Body, "not here") {
		t.Errorf("a refused stream says %+v", head)
	}
	<-c.requests

	header := acceptProtocolPrefix + base64.RawURLEncoding.EncodeToString([]byte("a\r\nAuthorization: x"))
	for _, x := range []struct {
		name, path, origin string
		protocols          []string
	}{
		{"another page", "/api/v1/pods?watch=1", "https://evil.example", []string{streamProtocol, key}},
		{"another port", "/api/v1/pods?watch=1", "http://127.0.0.1:1", []string{streamProtocol, key}},
		{"no key", "/api/v1/pods?watch=1", own, []string{streamProtocol}},
		{"a wrong key", "/api/v1/namespaces/a/pods/b/exec?command=sh", own, []string{"v5.channel.k8s.io", keyProtocolPrefix + "WRONG"}},
		{"what a Pod serves", "/api/v1/namespaces/a/pods/b/proxy", own, []string{streamProtocol, key}},
		{"a header in the accept protocol", "/api/v1/pods", own, []string{streamProtocol, key, header}},
	} {
		if ws, err := b.dial(x.path, x.origin, x.protocols...); err == nil {
			_ = ws.Close()
			t.Errorf("%s: it was accepted", x.name)
		}
	}
	select {
	case req := <-c.requests:
		t.Errorf("the API server was asked for %s", req.URL)
	default:
	}
}
