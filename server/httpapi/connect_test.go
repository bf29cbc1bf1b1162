package httpapi

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/websocket"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/internal/connlimit"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/gr"
	"proa.dev/server"
	"proa.dev/server/authz"
	"proa.dev/server/healthz"
	"proa.dev/server/nodeconnection"
)

// basicAuthenticator authenticates clients as the user of their basic authentication.
type basicAuthenticator struct{}

func (basicAuthenticator) Request(r *http.Request) (user.Info, error) {
	name, _, _ := r.BasicAuth()
	delete(r.Header, "Authorization")
	return &user.DefaultInfo{Name: name}, nil
}

func (basicAuthenticator) Review(context.Context, authenticationv1.TokenReviewSpec) authenticationv1.TokenReviewStatus {
	return authenticationv1.TokenReviewStatus{}
}

func (basicAuthenticator) Issue(context.Context, *corev1.ServiceAccount, *authenticationv1.TokenRequest) error {
	return nil
}

// readOnlyReader is an authorizer that allows the user "reader" only to read, and other users everything.
type readOnlyReader struct{ allowAll }

func (readOnlyReader) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if a.User.GetName() == "reader" && a.Verb != "get" {
		return authz.NoOpinion, "readers read", nil
	}
	return authz.Allow, "", nil
}

// fixedPodTransport connects to the same server for all Pods.
type fixedPodTransport struct {
	*nodeconnection.Agents
	pods *http.Transport
}

func (n fixedPodTransport) Pods(string) *http.Transport { return n.pods }

// serveAgent is the HTTP handler of a node's agent, which responds with the request that it got.
func serveAgent(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "" {
		http.Error(w, "the credentials of a client came through", http.StatusTeapot)
		return
	}
	switch {
	case strings.HasSuffix(r.URL.Path, "/elsewhere"): // attacks: an agent that redirects the API server
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
	case strings.HasSuffix(r.URL.Path, "/refuses"):
		http.Error(w, "no", http.StatusForbidden)
	case r.Header.Get("Upgrade") == "websocket":
		websocket.Server{Handler: func(ws *websocket.Conn) {
			_, _ = io.WriteString(ws, r.URL.Path+"?"+r.URL.RawQuery+" ")
			_, _ = io.Copy(ws, ws)
		}}.ServeHTTP(w, r)
	case strings.HasSuffix(r.URL.Path, "/waits"):
		http.Error(w, `container "waits" in pod "p" is waiting to start: ContainerCreating`, http.StatusBadRequest)
	case strings.HasSuffix(r.URL.Path, "/broken"):
		http.Error(w, "broken", http.StatusInternalServerError)
	default:
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+"?"+r.URL.RawQuery)
	}
}

// servePod is the HTTP handler of a Pod.
func servePod(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/away":
		http.Redirect(w, r, "/there", http.StatusFound)
	case "/links":
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<a href="/there">there</a>`)
	default:
		body, _ := io.ReadAll(r.Body)
		_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" "+r.URL.RawQuery+" "+string(body)+" "+r.Header.Get("X-Forwarded-Uri"))
	}
}

func newStreamServer(t *testing.T, plugins ...server.Plugin) *httptest.Server {
	t.Helper()
	r := newRig(t)
	r.Mutate = append(r.Mutate, plugins...)
	pods := httptest.NewServer(http.HandlerFunc(servePod))
	t.Cleanup(pods.Close)
	direct := &http.Transport{DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, pods.Listener.Addr().String())
	}}
	ways := nodeconnection.New(nodeconnection.Config{Log: slog.New(slog.DiscardHandler),
		Certificate: func() (*tls.Certificate, error) { return &tls.Certificate{}, nil }, CAs: x509.NewCertPool})
	unregister, err := ways.Join("n", http.HandlerFunc(serveAgent))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unregister)
	r.Nodes, r.Handler.Authn, r.Authz, r.Paths = fixedPodTransport{ways, direct}, basicAuthenticator{}, readOnlyReader{},
		http.NotFoundHandler()
	for n, address := range map[string]string{"n": "10.1.1.1", "away": "10.1.1.1", "loopback": "127.0.0.1", "local": "169.254.169.254"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: address}}}}
		if n == "loopback" || n == "local" {
			node.Status.DaemonEndpoints.KubeletEndpoint.Port = 6443
		}
		r.create(gr.Nodes, node)
	}
	r.create(gr.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}})
	for name, on := range map[string]string{"p": "n", "q": "away", "free": ""} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.PodSpec{NodeName: on}}
		for _, c := range []string{"c", "waits", "broken", "elsewhere", "refuses"} {
			p.Spec.Containers = append(p.Spec.Containers,
				corev1.Container{Name: c, Image: "i", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
					ImagePullPolicy: corev1.PullAlways})
		}
		o := r.create(gr.Pods, p).(*corev1.Pod)
		o.Status.PodIP, o.Status.PodIPs = "10.2.2.2", []corev1.PodIP{{IP: "10.2.2.2"}}
		if _, err := r.Client(r.who).Update(t.Context(), gr.Pods, o, "status"); err != nil {
			t.Fatal(err)
		}
	}
	h := httptest.NewServer(r.Handler)
	t.Cleanup(h.Close)
	return h
}

func TestStreamsOverHTTP(t *testing.T) {
	h := newStreamServer(t)
	plain := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, test := range []struct{ who, request, body, want string }{
		{"a", "GET /pods/p/log?container=c&tailLines=1", "", "200 GET /containerLogs/ns/p/c?tailLines=1"},
		{"reader", "GET /pods/p/log?container=c", "", "200 GET /containerLogs/ns/p/c?"},
		{"a", "GET /pods/p/log", "", `400 a container name must be specified for pod p, choose one of: [c waits broken elsewhere refuses]`},
		{"a", "GET /pods/p/log?container=waits", "", `400 container "waits" in pod "p" is waiting to start: ContainerCreating`},
		{"a", "GET /pods/p/log?container=broken", "", `500 Internal error occurred: broken`},
		{"a", "GET /pods/p/log?container=elsewhere", "", `500 Get "http://127.0.0.1:1/": redirects forbidden`},
		{"a", "GET /pods/free/log?container=c", "", "204 "},
		{"a", "GET /pods/q/log?container=c", "", `503 no node agent is connected for node "away"`},
		{"a", "DELETE /pods/p/log", "", "405 the server does not allow this method on the requested resource"},
		{"a", "POST /pods/p/exec?container=c&stdout=1", "", "400 Upgrade request required"},
		{"a", "POST /pods/none/exec", "", `404 pods "none" not found`},
		{"reader", "POST /pods/p/exec?container=c", "", `403 pods "p" is forbidden: User "reader" cannot create resource "pods/exec" in API group "" in the namespace "ns": readers read`},
		{"reader", "GET /pods/p/exec?container=c", "", `403 pods "p" is forbidden: User "reader" cannot create resource "pods/exec" in API group "" in the namespace "ns": readers read`},

		{"a", "GET /pods/p:80/proxy/a/b?x=1", "", "200 GET /a/b x=1  /api/v1/namespaces/ns/pods/p:80/proxy/a/b"},
		{"a", "POST /pods/p:80/proxy/a", "text", "200 POST /a  text /api/v1/namespaces/ns/pods/p:80/proxy/a"},
		{"a", "OPTIONS /pods/p:80/proxy/a", "", "200 OPTIONS /a   /api/v1/namespaces/ns/pods/p:80/proxy/a"},
		{"a", "TRACE /pods/p:80/proxy/a", "", "405 the server does not allow this method on the requested resource"},
		{"a", "OPTIONS /pods/p/exec", "", "405 the server does not allow this method on the requested resource"},
		{"a", "PUT /pods/p:80/proxy/a", "text", "200 PUT /a  text /api/v1/namespaces/ns/pods/p:80/proxy/a"},
		{"a", "GET /pods/p:80/proxy", "", "301 /api/v1/namespaces/ns/pods/p:80/proxy/"},
		{"a", "GET /pods/p:80/proxy/", "", "200 GET /   /api/v1/namespaces/ns/pods/p:80/proxy/"},
		{"a", "GET /pods/p:80/proxy/away", "", "302 /api/v1/namespaces/ns/pods/p:80/proxy/there"},
		{"a", "GET /pods/p:80/proxy/links", "", `200 <a href="/api/v1/namespaces/ns/pods/p:80/proxy/there">there</a>`},
		{"a", "GET /services/none/proxy/", "", `503 no endpoints available for service "none"`},
	} {
		method, path, _ := strings.Cut(test.request, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, h.URL+"/api/v1/namespaces/ns"+path, strings.NewReader(test.body))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(test.who, "")
		if got := responseText(t, plain, req); got != test.want {
			t.Errorf("%s %s:\n got %s\nwant %s", test.who, test.request, got, test.want)
		}
	}
	for path, want := range map[string]string{
		"/api/v1/nodes/n/proxy/exec/ns/p/c":     "200 GET /exec/ns/p/c?",
		"/api/v1/nodes/loopback/proxy/":         "400 address not allowed",
		"/api/v1/nodes/http:loopback:80/proxy/": "400 address not allowed",
		"/api/v1/nodes/http:local:80/proxy/":    "400 address not allowed",
		"/api/v1/nodes/n/proxy/pods":            "200 GET /pods?",
		"/api/v1/nodes/n:10250/proxy/stats/a?b": "200 GET /stats/a?b",
		"/api/v1/nodes/none/proxy/":             `404 nodes "none" not found`,
		"/api/v1/nodes/away/proxy/":             `503 no node agent is connected for node "away"`,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("a", "")
		if got := responseText(t, plain, req); got != want {
			t.Errorf("%s:\n got %s\nwant %s", path, got, want)
		}
	}
}

// responseText returns a response as "code text", "code location", or the message of a Status.
func responseText(t *testing.T, c *http.Client, req *http.Request) string {
	t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	text := string(body)
	if _, after, found := strings.Cut(text, `"message":`); found && strings.Contains(text, `"kind":"Status"`) {
		for i := 2; i < len(after); i++ {
			if after[i] == '"' && after[i-1] != '\\' {
				if s, err := strconv.Unquote(after[:i+1]); err == nil {
					text = s
				}
				break
			}
		}
	}
	if l := resp.Header.Get("Location"); l != "" {
		text = strings.TrimPrefix(l, req.URL.Scheme+"://"+req.URL.Host)
	}
	return strconv.Itoa(resp.StatusCode) + " " + text
}

func TestStreamsAreUpgraded(t *testing.T) {
	h := newStreamServer(t)
	for path, want := range map[string]string{
		"/pods/p/exec?container=c&command=ls&stdout=true": "/exec/ns/p/c?command=ls&output=1 hello",
		"/pods/p/attach?container=c&stdin=1":              "/attach/ns/p/c?input=1 hello",
		"/pods/p/portforward?ports=80":                    "/portForward/ns/p?port=80 hello",
	} {
		if got := openStream(t, h, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// TestStreamsOfAUserAreBounded checks that a user gets half of the streams that the server may have, and that ordinary
// requests and other users are served nevertheless.
func TestStreamsOfAUserAreBounded(t *testing.T) {
	h := newStreamServer(t)
	h.Config.Handler.(*Handler).Connections = connlimit.New(64, slog.New(slog.DiscardHandler)) // 16 streams
	const exec = "/api/v1/namespaces/ns/pods/p/exec?container=c&command=ls&stdout=true"
	open := func(who string) bool {
		c, err := websocket.NewConfig("ws"+strings.TrimPrefix(h.URL, "http")+exec, h.URL)
		if err != nil {
			t.Fatal(err)
		}
		req := &http.Request{Header: http.Header{}}
		req.SetBasicAuth(who, "")
		c.Header = req.Header
		ws, err := c.DialContext(t.Context())
		if err != nil {
			return false
		}
		t.Cleanup(func() { _ = ws.Close() })
		return true
	}
	for i := range 8 {
		if !open("a") {
			t.Fatalf("stream %d was refused", i)
		}
	}
	if open("a") {
		t.Error("one more stream of the same user was opened")
	}
	if !open("b") {
		t.Error("another user gets no stream")
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/api/v1/namespaces/ns/pods/p", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("a", "")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("an ordinary request: %s", resp.Status)
	}
}

// openStream opens a stream, sends a text, and returns everything that is received until the text comes back.
func openStream(t *testing.T, h *httptest.Server, path string) string {
	t.Helper()
	c, err := websocket.NewConfig("ws"+strings.TrimPrefix(h.URL, "http")+"/api/v1/namespaces/ns"+path, h.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.Header.Set("Authorization", "Basic YTo=") // the user "a" without a password
	ws, err := c.DialContext(t.Context())
	if err != nil {
		return err.Error()
	}
	defer func() { _ = ws.Close() }()
	if _, err := io.WriteString(ws, "hello"); err != nil {
		return err.Error()
	}
	var got []byte
	for next := make([]byte, 1); !strings.HasSuffix(string(got), "hello"); got = append(got, next...) {
		if _, err := io.ReadFull(ws, next); err != nil {
			return string(got) + err.Error()
		}
	}
	return string(got)
}

// TestOptionsOfStreams checks that a plugin of hop 4 can replace the options of a connection.
func TestOptionsOfStreams(t *testing.T) {
	h := newStreamServer(t, server.Plugin{Name: "changes", Admit: func(_ context.Context, a *kind.Admission) error {
		switch o := a.Connect.(type) {
		case *corev1.PodExecOptions:
			a.Connect = &corev1.PodExecOptions{Stdout: true, TTY: true, Container: "c", Command: append([]string{"audited"}, o.Command...)}
		case *corev1.PodAttachOptions:
			a.Connect = &corev1.PodAttachOptions{Stdout: true, Stderr: o.Stderr, Container: "c"}
		case *corev1.PodPortForwardOptions:
			a.Connect = &corev1.PodPortForwardOptions{Ports: append(o.Ports, 81)}
		case *corev1.PodProxyOptions:
			a.Connect = &corev1.PodProxyOptions{Path: "/changed" + o.Path}
		case *corev1.NodeProxyOptions:
			a.Connect = &corev1.NodeProxyOptions{Path: strings.Replace(o.Path, "/harmless", "/exec", 1)}
		}
		return nil
	}})
	for path, want := range map[string]string{
		"/pods/p/exec?container=waits&command=ls&stdin=true": "/exec/ns/p/c?command=audited&command=ls&output=1&tty=1 hello",
		"/pods/p/attach?container=waits&stdin=1&stderr=1":    "/attach/ns/p/c?error=1&output=1 hello",
		"/pods/p/portforward?ports=80":                       "/portForward/ns/p?port=80%2C81 hello",
	} {
		if got := openStream(t, h, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
	for _, test := range []struct{ who, path, want string }{
		{"a", "/namespaces/ns/pods/p:80/proxy/a?x=1", "200 GET /changed/a x=1  /api/v1/namespaces/ns/pods/p:80/proxy/a/changed/a"},
		{"reader", "/nodes/n/proxy/pods", "200 GET /pods?"},
		{"a", "/nodes/n/proxy/harmless/ns/p/c", "200 GET /exec/ns/p/c?"},
		{"reader", "/nodes/n/proxy/harmless/ns/p/c", `403 nodes "n" is forbidden: User "reader" cannot create resource "nodes/proxy" in API group "" at the cluster scope: readers read`},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/api/v1"+test.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth(test.who, "")
		if got := responseText(t, http.DefaultClient, req); got != test.want {
			t.Errorf("%s %s:\n got %s\nwant %s", test.who, test.path, got, test.want)
		}
	}
}

// TestGetNodesProxyRunsNoCommands checks that the right to get nodes/proxy is not enough for a GET that becomes a stream which runs
// commands.
func TestGetNodesProxyRunsNoCommands(t *testing.T) {
	h := newStreamServer(t)
	const refused = `403 nodes "n" is forbidden: User "reader" cannot create resource "nodes/proxy" in API group "" at the cluster scope: readers read`
	for path, want := range map[string]string{
		"pods": "200 GET /pods?", "exec/ns/p/c?command=id&output=1": refused,
		"run/ns/p/c": refused, "/attach/ns/p/c": refused,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.URL+"/api/v1/nodes/n/proxy/"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("reader", "")
		if got := responseText(t, http.DefaultClient, req); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestRefusedUpgrades checks that when the agent does not upgrade a connection, nothing that the client sends on it reaches
// the agent, which would take it for a request of the API server.
func TestRefusedUpgrades(t *testing.T) {
	h := newStreamServer(t)
	for container, want := range map[string]string{"refuses": "HTTP/1.1 403 Forbidden", "elsewhere": "HTTP/1.1 500 Internal Server Error"} {
		conn, err := net.Dial("tcp", h.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		head := " HTTP/1.1\r\nHost: x\r\nAuthorization: Basic YTo=\r\n"
		_, err = io.WriteString(conn, "GET /api/v1/namespaces/ns/pods/p/exec?stdout=1&container="+container+head+
			"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"+
			"GET /pods"+head+"Connection: close\r\n\r\n")
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(conn)
		if err != nil || !strings.HasPrefix(string(answer), want) || strings.Contains(string(answer), "GET /pods?") {
			t.Errorf("%s: %s (%v)", container, answer, err)
		}
		_ = conn.Close()
	}
}

// TestNodeProxyPathsAreCleanedBeforeAuthorization checks that the permission "get nodes/proxy" opens no stream into a
// container, however the path is written. Each path is sent unchanged.
func TestNodeProxyPathsAreCleanedBeforeAuthorization(t *testing.T) {
	h := newStreamServer(t)
	for _, form := range []string{
		"%s", "/%s", "//%s", "%%2f%s", "./%s", "%%2e/%s", "pods/../%s", "pods/%%2e%%2e/%s", "pods/.%%2E/%s", "pods%%2f..%%2f%s",
		"pods%%2F%%2e%%2e%%2F%s",
		"pods//../%s", "pods/x/../../%s", "pods/..//%s", "stats/../%s", "logs/../%s", "healthz/../%s", "../proxy/%s", "../../n/proxy/%s",
		`pods\..\%s`, "pods%%5c..%%5c%s",
		"pods;/../%s", "pods;x=1/..;y/../../%s",
	} {
		for _, to := range []string{"exec/ns/p/c?command=id", "attach/ns/p/c?input=1", "portForward/ns/p?port=80", "run/ns/p/c?cmd=id",
			"cri/exec/token"} {
			path := fmt.Sprintf(form, to)
			got := sendRawPath(t, h.Listener.Addr().String(), "/api/v1/nodes/n/proxy/"+path)
			if !strings.HasPrefix(got, "HTTP/1.1 403 ") && !strings.HasPrefix(got, "HTTP/1.1 400 ") {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
	// Paths that the agent would not serve as a stream either are allowed.
	for _, path := range []string{"EXEC/ns/p/c", "Exec/ns/p/c", "exec./ns/p/c", "exec;x/ns/p/c", "exec%20/ns/p/c",
		"pods/%252e%252e/exec/ns/p/c"} {
		got := sendRawPath(t, h.Listener.Addr().String(), "/api/v1/nodes/n/proxy/"+path)
		want := "GET /" + strings.ReplaceAll(strings.ReplaceAll(path, "%20", " "), "%25", "%") + "?"
		if !strings.HasPrefix(got, "HTTP/1.1 200 ") || !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := sendRawPath(t, h.Listener.Addr().String(), "/api/v1/nodes/n/proxy//stats//summary"); !strings.Contains(got,
		"GET /stats/summary?") {
		t.Error(got)
	}
}

// sendRawPath sends a request for a path as the user "reader", without cleaning or encoding the path, and returns the whole
// response.
func sendRawPath(t *testing.T, address, path string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Basic cmVhZGVyOg==\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(answer)
}

// TestNonResourcePathsAreAuthorizedAsSent checks that a user who may read "/openapi/*" can read nothing else with it. The
// path is authorized as it was sent, and a client with a path that is not clean is redirected to the clean one, which is
// authorized again.
func TestNonResourcePathsAreAuthorizedAsSent(t *testing.T) {
	r := newRig(t)
	r.Handler.Authn, r.Authz = basicAuthenticator{}, allowOpenAPI{}
	page := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) { _, _ = io.WriteString(w, "served "+req.URL.Path) })
	r.Paths = (&healthz.Endpoints{Others: map[string]http.Handler{"/metrics": page, "/openapi/v3/": page}}).Handler()
	h := httptest.NewServer(r.Handler)
	t.Cleanup(h.Close)
	if got := sendRawPath(t, h.Listener.Addr().String(), "/openapi/v3/x"); !strings.Contains(got, "served /openapi/v3/x") {
		t.Error(got)
	}
	for _, path := range []string{
		"/metrics", "/openapi/../metrics", "/openapi/v3/../../metrics", "/openapi/%2e%2e/metrics", "/openapi/..%2fmetrics",
		"/openapi%2f..%2fmetrics", "/openapi//../metrics", "/openapi/./../metrics", `/openapi/..\metrics`, "/openapi/..;/metrics",
	} {
		if got := sendRawPath(t, h.Listener.Addr().String(), path); strings.Contains(got, "served /metrics") {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// allowOpenAPI is an authorizer that allows everybody to read paths that begin with /openapi/, and nothing else.
type allowOpenAPI struct{ allowAll }

func (allowOpenAPI) Authorize(_ context.Context, a authz.Attributes) (authz.Decision, string, error) {
	if strings.HasPrefix(a.Path, "/openapi/") {
		return authz.Allow, "", nil
	}
	return authz.NoOpinion, "", nil
}

// pauseRecorder is a response writer that records whether Lasting was called, after which the client may pause.
type pauseRecorder struct {
	*httptest.ResponseRecorder
	mayPause bool
}

func (p *pauseRecorder) Lasting() { p.mayPause = true }

// TestLogClientsMayPause checks that Lasting is called for a log, whose client may pause, but not for errors and lists.
func TestLogClientsMayPause(t *testing.T) {
	handler := newStreamServer(t).Config.Handler
	for path, want := range map[string]bool{
		"/api/v1/namespaces/ns/pods/p/log?container=c": true, "/api/v1/namespaces/ns/pods/none/log": false,
		"/api/v1/namespaces/ns/pods": false, "/api/v1/namespaces/ns/pods/p": false,
	} {
		w := &pauseRecorder{ResponseRecorder: httptest.NewRecorder()}
		handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.mayPause != want {
			t.Errorf("%s: %v, %d %.200s", path, w.mayPause, w.Code, w.Body)
		}
	}
}
