package nodeconnection

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/net/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/kinds/lib/streamoptions"
	far "proa.dev/node/tunnel"
)

// tunnelServer is the part of an API server to which agents open tunnels. It authenticates clients by their certificates.
type tunnelServer struct {
	*Agents
	*httptest.Server
	ca   *authority
	pool *x509.CertPool
	// certs are the certificates of nodes, which outlive the processes of their agents.
	certs map[string]*tls.Certificate
	// requests counts all requests, refused those that were refused.
	requests, refused atomic.Int64
}

func newTunnelServer(t *testing.T) *tunnelServer {
	t.Helper()
	f := &tunnelServer{ca: newAuthority(t), pool: x509.NewCertPool(), certs: map[string]*tls.Certificate{}}
	f.pool.AddCert(f.ca.cert)
	caller := f.ca.named("kube-apiserver-kubelet-client", "system:masters")
	f.Agents = New(Config{Log: slog.New(slog.DiscardHandler), Certificate: func() (*tls.Certificate, error) { return caller, nil },
		CAs: func() *x509.CertPool { return f.pool }, Verify: f.verify})
	f.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		who := &user.DefaultInfo{Name: r.Header.Get("Impersonate-User"), Groups: []string{r.Header.Get("Impersonate-Group")}}
		if who.Name == "" {
			who = userOf(r.TLS.PeerCertificates[0])
		}
		if err := f.Open(w, r, who); err != nil {
			f.refused.Add(1)
			code := http.StatusInternalServerError
			if st, ok := errors.AsType[*apierrors.StatusError](err); ok {
				code = int(st.ErrStatus.Code)
			}
			http.Error(w, err.Error(), code)
		}
	}))
	f.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*f.ca.named("kube-apiserver", "")},
		ClientAuth: tls.RequireAnyClientCert}
	f.Server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	f.StartTLS()
	t.Cleanup(func() {
		f.Agents.Close()
		f.Server.Close()
	})
	return f
}

// verify returns the identity in a certificate of the authority.
func (f *tunnelServer) verify(chain []*x509.Certificate) (user.Info, error) {
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: f.pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return userOf(chain[0]), err
}

// userOf returns the identity in a certificate.
func userOf(c *x509.Certificate) *user.DefaultInfo {
	return &user.DefaultInfo{Name: c.Subject.CommonName, Groups: c.Subject.Organization,
		Extra: map[string][]string{user.CredentialIDKey: {c.SerialNumber.String()}}}
}

// certOf returns the certificate of a node.
func (f *tunnelServer) certOf(node string) *tls.Certificate {
	if f.certs[node] == nil {
		f.certs[node] = f.ca.named("system:node:"+node, "system:nodes")
	}
	return f.certs[node]
}

func (f *tunnelServer) tlsConfigOf(c *tls.Certificate) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: f.pool, Certificates: []tls.Certificate{*c}}
}

// run opens the tunnels of a node. They end with the test, or when stop is called.
func (f *tunnelServer) run(t *testing.T, node string, own ...string) (stop func()) {
	t.Helper()
	return f.runTo(t, node, []string{f.Listener.Addr().String()}, own...)
}

func (f *tunnelServer) runTo(t *testing.T, node string, servers []string, own ...string) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var addresses []netip.Addr
	for _, text := range own {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	end := far.New(far.Config{
		Servers: func(yield func([]string) bool) {
			if yield(servers) {
				<-ctx.Done()
			}
		},
		TLS: f.tlsConfigOf(f.certOf(node)), Log: slog.New(slog.DiscardHandler),
		NodeIPs: func() []netip.Addr { return addresses }, IsPodIP: func(netip.Addr) bool { return false },
	})
	var wg sync.WaitGroup
	wg.Go(func() { _ = end.Run(ctx) })
	stop = func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return stop
}

// waitForTunnel waits until a node has another tunnel than before, and returns it.
func (f *tunnelServer) waitForTunnel(t *testing.T, node string, before *tunnel) *tunnel {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if now := f.tunnel(node); now != before && now != nil {
			return now
		}
	}
	t.Fatalf("node %s has no tunnel", node)
	return nil
}

// waitForNoTunnel waits until a node has no tunnel.
func (f *tunnelServer) waitForNoTunnel(t *testing.T, node string) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); f.tunnel(node) != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("node %s still has a tunnel", node)
		}
	}
}

// refuseDial is a dialer that has no route to any address.
func refuseDial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no route")
}

// startServer starts an HTTPS server of a node on a loopback address.
func startServer(t *testing.T, ip string, h http.Handler, c *tls.Certificate) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	_ = s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	if c == nil {
		s.Start()
	} else {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*c}, ClientAuth: tls.RequireAnyClientCert}
		s.StartTLS()
	}
	t.Cleanup(s.Close)
	return l.Addr().(*net.TCPAddr).Port
}

// TestConnectionsThroughTunnel checks that without a route, the agent and servers on its node are reached through the
// tunnel, and that the agent must still present its certificate.
func TestConnectionsThroughTunnel(t *testing.T) {
	f := newTunnelServer(t)
	f.route = refuseDial
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "" {
			websocket.Handler(func(ws *websocket.Conn) { _, _ = io.Copy(ws, ws) }).ServeHTTP(w, r)
			return
		}
		if r.TLS == nil {
			_, _ = io.WriteString(w, "a Pod, asked for "+r.URL.Path)
			return
		}
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName+" asks for "+r.URL.Path)
	})
	agent := startServer(t, "127.0.0.9", handler, f.ca.named("system:node:n", "system:nodes"))
	other := startServer(t, "127.0.0.9", handler, f.ca.named("system:node:m", "system:nodes"))
	pod := startServer(t, "127.0.0.9", handler, nil)
	if got := get(t, f.Agents, node("n", "127.0.0.9", agent)); !strings.Contains(got,
		"node n cannot be reached, and has no tunnel to this server: no route") {
		t.Errorf("before there is a tunnel: %s", got)
	}
	f.run(t, "n", "127.0.0.9")
	f.waitForTunnel(t, "n", nil)
	for _, test := range []struct {
		name string
		got  string
		want string
	}{
		{"the agent", get(t, f.Agents, node("n", "127.0.0.9", agent)), "kube-apiserver-kubelet-client asks for /x"},
		{"another agent in its place", get(t, f.Agents, node("n", "127.0.0.9", other)),
			`at the address of node n is "system:node:m", not its agent`},
		{"an address of others", get(t, f.Agents, node("n", "127.0.0.8", agent)),
			"127.0.0.8 is neither the node's nor that of one of its Pods"},
		{"another node", get(t, f.Agents, node("m", "127.0.0.9", other)),
			"node m cannot be reached, and has no tunnel to this server: no route"},
		{"a Pod", fetch(t, f.Pods("n"), fmt.Sprintf("http://127.0.0.9:%d/y", pod)), "a Pod, asked for /y"},
		{"a port without a listener", fetch(t, f.Pods("n"), "http://127.0.0.9:1/y"),
			"through the tunnel of node n: dial tcp 127.0.0.9:1: connect: connection refused"},
	} {
		if !strings.Contains(test.got, test.want) {
			t.Errorf("%s: %s, want %s", test.name, test.got, test.want)
		}
	}
	at, by, err := f.Agent(node("n", "127.0.0.9", agent))
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(proxy.NewUpgradeAwareHandler(at, by, false, true, errorWriter{}))
	defer front.Close()
	ws, err := websocket.Dial("ws"+strings.TrimPrefix(front.URL, "http"), "", "http://here")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("0123456789abcdef", 1<<16)
	go func() { _, _ = io.WriteString(ws, text) }()
	got := make([]byte, len(text))
	if _, err := io.ReadFull(ws, got); err != nil || string(got) != text {
		t.Errorf("a stream both ways: %v", err)
	}
	_ = ws.Close()
}

type errorWriter struct{}

func (errorWriter) Error(w http.ResponseWriter, _ *http.Request, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func fetch(t *testing.T, by *http.Transport, url string) string {
	t.Helper()
	resp, err := (&http.Client{Transport: by}).Get(url)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}

// TestRouteOrTunnel checks when a route and when a tunnel is used, and for how long that is remembered.
func TestRouteOrTunnel(t *testing.T) {
	f := newTunnelServer(t)
	agent := startServer(t, "127.0.0.1", http.NotFoundHandler(), nil)
	addr := fmt.Sprintf("127.0.0.1:%d", agent)
	pod := fmt.Sprintf("127.0.0.2:%d", startServer(t, "127.0.0.2", http.NotFoundHandler(), nil))
	routes := atomic.Int64{}
	direct := f.route
	f.route = func(ctx context.Context, network, addr string) (net.Conn, error) {
		routes.Add(1)
		return direct(ctx, network, addr)
	}
	dial := func(to string) string {
		before := routes.Load()
		c, err := f.Dial(t.Context(), "n", to)
		if err != nil {
			return err.Error()
		}
		defer func() { _ = c.Close() }()
		return fmt.Sprintf("%s, %d tried", c.RemoteAddr().Network(), routes.Load()-before)
	}
	expect := func(name, to, want string) {
		t.Helper()
		if got := dial(to); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	expect("without a tunnel", addr, "tcp, 1 tried")
	stop := f.run(t, "n", "127.0.0.1", "127.0.0.2")
	first := f.waitForTunnel(t, "n", nil)
	expect("with a route", addr, "tcp, 1 tried")
	good := f.route
	f.route = func(ctx context.Context, network, addr string) (net.Conn, error) {
		routes.Add(1)
		return refuseDial(ctx, network, addr)
	}
	expect("without a route", addr, "tunnel, 1 tried")
	expect("it is remembered", addr, "tunnel, 0 tried")
	first.own = first.own[:1] // the second address now belongs to a Pod
	expect("for Pods apart", pod, "tunnel, 1 tried")
	f.route = good
	first.shut[toNode].Store(time.Now().UnixNano())
	expect("it is tried again", addr, "tcp, 1 tried")
	expect("Pods are not yet", pod, "tunnel, 0 tried")
	stop()
	f.waitForNoTunnel(t, "n")
	// A node that connects from another address than its own is behind NAT: its address may belong to another machine
	// here.
	f.run(t, "n", "127.0.0.2")
	f.waitForTunnel(t, "n", nil)
	expect("behind a translator", pod, "tunnel, 0 tried")
}

// TestFirstConnectionWins checks that the tunnel is tried when the route has failed or takes long, and that a connection that comes
// too late is closed.
func TestFirstConnectionWins(t *testing.T) {
	after := func(d time.Duration, err error) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) {
			select {
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-time.After(d):
			}
			if err != nil {
				return nil, err
			}
			c, _ := net.Pipe()
			return c, nil
		}
	}
	bad := errors.New("bad")
	for _, test := range []struct {
		name          string
		route, tunnel func(context.Context) (net.Conn, error)
		want          string
	}{
		{"a route", after(time.Millisecond, nil), after(0, nil), "direct after 1ms"},
		{"a slow route", after(249*time.Millisecond, nil), after(0, nil), "direct after 249ms"},
		{"no answer", after(30*time.Second, nil), after(20*time.Millisecond, nil), "tunnel after 270ms"},
		{"a refusal", after(10*time.Millisecond, bad), after(20*time.Millisecond, nil), "tunnel after 30ms"},
		{"a tunnel that is even slower", after(300*time.Millisecond, nil), after(time.Second, nil), "direct after 300ms"},
		{"a tunnel that fails", after(time.Second, nil), after(time.Millisecond, bad), "direct after 1s"},
		{"neither", after(time.Second, bad), after(time.Millisecond, bad), "bad\nbad after 1s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := New(Config{Log: slog.New(slog.DiscardHandler)})
				begin := time.Now()
				c, direct, err := a.dialBoth(t.Context(), test.route, test.tunnel)
				took := time.Since(begin)
				got := "tunnel"
				if direct {
					got = "direct"
				}
				if err != nil {
					got = err.Error()
				} else {
					_ = c.Close()
				}
				if got = fmt.Sprintf("%s after %s", got, took); got != test.want {
					t.Errorf("%s, want %s", got, test.want)
				}
				a.Close()
			})
		})
	}
}

// TestOnlyNodeCertificatesOpenTunnels checks that a tunnel of a node can be opened only with the certificate of that node.
func TestOnlyNodeCertificatesOpenTunnels(t *testing.T) {
	f := newTunnelServer(t)
	open := func(c *tls.Certificate, head map[string]string) string {
		conn, err := tls.Dial("tcp", f.Listener.Addr().String(), f.tlsConfigOf(c))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		req, _ := http.NewRequest(http.MethodPost, "https://server"+streamoptions.TunnelPath, http.NoBody)
		for k, v := range map[string]string{"Connection": "Upgrade", "Upgrade": streamoptions.TunnelProtocol, streamoptions.TunnelFrom: "p",
			streamoptions.TunnelAt: "192.0.2.1"} {
			req.Header.Set(k, v)
		}
		for k, v := range head {
			req.Header.Set(k, v)
		}
		if err := req.Write(conn); err != nil {
			t.Fatal(err)
		}
		var head1 [13]byte
		if _, err := io.ReadFull(conn, head1[:]); err != nil {
			t.Fatal(err)
		}
		return string(head1[9:12])
	}
	n, otherCA := f.ca.named("system:node:n", "system:nodes"), newAuthority(t)
	serving := f.ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "system:node:n", Organization: []string{"system:nodes"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	for _, test := range []struct {
		name string
		cert *tls.Certificate
		head map[string]string
		want string
	}{
		{"a node", n, nil, "101"},
		{"a node in the name of another", n, map[string]string{"Impersonate-User": "system:node:m", "Impersonate-Group": "system:nodes"},
			"403"},
		{"an administrator in the name of a node", f.ca.named("admin", "system:masters"),
			map[string]string{"Impersonate-User": "system:node:m", "Impersonate-Group": "system:nodes"}, "403"},
		{"an administrator", f.ca.named("admin", "system:masters"), nil, "403"},
		{"the token of a Pod beside the certificate of a node", n,
			map[string]string{"Impersonate-User": "system:serviceaccount:default:default", "Impersonate-Group": "system:serviceaccounts"},
			"403"},
		{"a node that is in no group", f.ca.named("system:node:n", "others"), nil, "403"},
		{"a node with a certificate of another authority", otherCA.named("system:node:n", "system:nodes"), nil, "403"},
		{"a token of a node beside a certificate of another authority", otherCA.named("system:node:m", "system:nodes"),
			map[string]string{"Impersonate-User": "system:node:m", "Impersonate-Group": "system:nodes"}, "403"},
		{"a node with a serving certificate", serving, nil, "403"},
		{"a node in its own name", n, map[string]string{"Impersonate-User": "system:node:n", "Impersonate-Group": "system:nodes"}, "403"},
		{"a node without a name", f.ca.named("system:node:", "system:nodes"), nil, "403"},
		{"another protocol", n, map[string]string{"Upgrade": "websocket"}, "400"},
		{"no upgrade", n, map[string]string{"Connection": "keep-alive"}, "400"},
		{"no name", n, map[string]string{streamoptions.TunnelFrom: ""}, "400"},
		{"a long name", n, map[string]string{streamoptions.TunnelFrom: strings.Repeat("x", maxText+1)}, "400"},
		{"no address", n, map[string]string{streamoptions.TunnelAt: ""}, "400"},
		{"a wrong address", n, map[string]string{streamoptions.TunnelAt: "192.0.2.1,name"}, "400"},
	} {
		if got := open(test.cert, test.head); got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if f.tunnel("m") != nil || f.tunnel("") != nil {
			t.Fatalf("%s: it has a tunnel of another", test.name)
		}
	}
	unregister, err := f.Join("l", http.NotFoundHandler())
	if err != nil {
		t.Fatal(err)
	}
	defer unregister()
	if got := open(f.ca.named("system:node:l", "system:nodes"), nil); got != "409" {
		t.Errorf("a node of this process: %s", got)
	}
}

// TestAgentSendsNoRequestsThroughTunnel checks that an agent cannot send requests to the server through its tunnel.
func TestAgentSendsNoRequestsThroughTunnel(t *testing.T) {
	f := newTunnelServer(t)
	for name, attack := range map[string]func(*http2.Framer, []byte) error{
		"a request": func(to *http2.Framer, head []byte) error {
			return to.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head, EndHeaders: true, EndStream: true})
		},
		"a request of a server": func(to *http2.Framer, head []byte) error {
			return to.WriteHeaders(http2.HeadersFrameParam{StreamID: 2, BlockFragment: head, EndHeaders: true, EndStream: true})
		},
		"a push": func(to *http2.Framer, head []byte) error {
			return to.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: head, EndHeaders: true})
		},
		"data": func(to *http2.Framer, _ []byte) error {
			return to.WriteData(1, true, []byte("GET /api/v1/secrets HTTP/1.1\r\n\r\n"))
		},
		"an HTTP/1.1 request": func(to *http2.Framer, _ []byte) error {
			return to.WriteRawFrame('G', 'E', 'T'<<16, []byte("/api/v1/secrets HTTP/1.1\r\n\r\n"))
		},
	} {
		conn, err := tls.Dial("tcp", f.Listener.Addr().String(), f.tlsConfigOf(f.ca.named("system:node:n", "system:nodes")))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: server\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: p\r\n%s: 127.0.0.1\r\n\r\n", streamoptions.TunnelPath, streamoptions.TunnelProtocol, streamoptions.TunnelFrom, streamoptions.TunnelAt)
		r := bufio.NewReader(conn)
		resp, err := http.ReadResponse(r, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(resp, err)
		}
		if _, err := io.CopyN(io.Discard, r, int64(len(http2.ClientPreface))); err != nil {
			t.Fatal(err)
		}
		to := http2.NewFramer(conn, r)
		var head bytes.Buffer
		enc := hpack.NewEncoder(&head)
		for _, h := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":path", "/api/v1/secrets"}, {":authority", "server"}} {
			_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
		}
		if err := to.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		f.waitForTunnel(t, "n", nil) // so that its end can be awaited below
		if err := errors.Join(attack(to, head.Bytes()), to.WritePing(false, [8]byte{1})); err != nil {
			t.Fatal(err)
		}
		for over := false; !over; { // until the server has read everything, or failed
			frame, err := to.ReadFrame()
			switch frame := frame.(type) {
			case *http2.HeadersFrame, *http2.DataFrame, *http2.PushPromiseFrame:
				t.Errorf("%s is answered with %v", name, frame)
			case *http2.PingFrame:
				over = frame.IsAck()
			}
			over = over || err != nil
		}
		_ = conn.Close()
		f.waitForNoTunnel(t, "n")
	}
	if got := f.requests.Load(); got != 5 {
		t.Errorf("%d requests came, want those for the 5 tunnels", got)
	}
}

// TestNewProcessReplacesTheTunnel checks that a new process of an agent replaces the tunnel of the one before, and that one which
// finds the server at two addresses keeps one tunnel.
func TestNewProcessReplacesTheTunnel(t *testing.T) {
	f := newTunnelServer(t)
	f.run(t, "n", "127.0.0.1")
	first := f.waitForTunnel(t, "n", nil)
	f.run(t, "n", "127.0.0.1")
	second := f.waitForTunnel(t, "n", first)
	for end := time.Now().Add(30 * time.Second); first.conn.Err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the tunnel of before is still open")
		}
	}
	if first.from == second.from {
		t.Error("two processes have the same name")
	}
	_, port, _ := net.SplitHostPort(f.Listener.Addr().String())
	f.runTo(t, "m", []string{"127.0.0.1:" + port, "[::ffff:127.0.0.1]:" + port}, "127.0.0.1")
	have := f.waitForTunnel(t, "m", nil)
	for f.refused.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	if f.tunnel("m") != have || have.conn.Err() != nil {
		t.Error("a second tunnel of the same process has taken the place of the first")
	}
}

// TestTunnelReopens checks that the tunnel is soon opened again, whichever end breaks, and that connections through it
// have ended.
func TestTunnelReopens(t *testing.T) {
	f := newTunnelServer(t)
	f.route = refuseDial
	echo := fmt.Sprintf("127.0.0.1:%d", startEchoServer(t))
	stop := f.run(t, "n", "127.0.0.1")
	first := f.waitForTunnel(t, "n", nil)
	open := f.dial(t, echo)
	_ = first.conn.Close()
	second := f.waitForTunnel(t, "n", first)
	if n, err := open.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes through a tunnel that is gone", n)
	}
	open = f.dial(t, echo)
	stop()
	if n, err := open.Read(make([]byte, 1)); err == nil {
		t.Errorf("%d bytes from an agent that is gone", n)
	}
	f.waitForNoTunnel(t, "n")
	if second.conn.Err() == nil {
		t.Error("the tunnel of an agent that is gone is open")
	}
	f.run(t, "n", "127.0.0.1")
	third := f.waitForTunnel(t, "n", nil)
	f.Agents.Close()
	if third.conn.Err() == nil || f.tunnel("n") != nil {
		t.Error("a tunnel is open after the end")
	}
	if _, err := f.Dial(t.Context(), "n", echo); err == nil {
		t.Error("there is a way after the end")
	}
}

// TestSeveralServers checks that an agent has a tunnel to each server, that a server that stops closes only its own,
// and that one without a tunnel reports that.
func TestSeveralServers(t *testing.T) {
	f, g := newTunnelServer(t), newTunnelServer(t)
	f.route, g.route = refuseDial, refuseDial
	g.ca, g.pool = f.ca, f.pool
	g.TLS.Certificates[0] = *f.ca.named("kube-apiserver", "")
	echo := fmt.Sprintf("127.0.0.1:%d", startEchoServer(t))
	f.runTo(t, "n", []string{f.Listener.Addr().String(), g.Listener.Addr().String()}, "127.0.0.1")
	f.waitForTunnel(t, "n", nil)
	have := g.waitForTunnel(t, "n", nil)
	open := g.dial(t, echo)
	defer func() { _ = open.Close() }()
	f.Agents.Close()
	if _, err := f.Dial(t.Context(), "n", echo); err == nil || !strings.Contains(err.Error(), "has no tunnel to this server") {
		t.Errorf("without a tunnel: %v", err)
	}
	got := make([]byte, 2)
	if _, err := io.WriteString(open, "ok"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(open, got); err != nil || string(got) != "ok" || g.tunnel("n") != have {
		t.Errorf("the other server: %q, %v", got, err)
	}
}

// newServerWithTunnelOnly returns a server that reaches node n only through its tunnel, and the address of an echo server
// on that node.
func newServerWithTunnelOnly(t *testing.T) (f *tunnelServer, echo string) {
	t.Helper()
	f = newTunnelServer(t)
	f.route = refuseDial
	f.run(t, "n", "127.0.0.1")
	f.waitForTunnel(t, "n", nil)
	return f, fmt.Sprintf("127.0.0.1:%d", startEchoServer(t))
}

// TestConnectionLimitOfTunnel checks the limit of connections through a tunnel: others fail at once, and freed ones are reused.
func TestConnectionLimitOfTunnel(t *testing.T) {
	f, echo := newServerWithTunnelOnly(t)
	var all []net.Conn
	for range streamoptions.TunnelStreams {
		all = append(all, f.dial(t, echo))
	}
	if _, err := f.Dial(t.Context(), "n", echo); err == nil || !strings.Contains(err.Error(), "the tunnel of node n is gone, or full") {
		t.Errorf("one too many: %v", err)
	}
	for _, c := range all[1:] {
		_ = c.Close()
	}
	for f.tunnel("n").conn.InFlight() > 1 {
		time.Sleep(time.Millisecond)
	}
	_ = f.dial(t, echo).Close()
	if _, err := io.WriteString(all[0], "still"); err != nil {
		t.Error(err)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(all[0], got); err != nil || string(got) != "still" {
		t.Errorf("the first one reads %q, %v", got, err)
	}
}

// TestSlowReader checks that a client which does not read does not delay others.
func TestSlowReader(t *testing.T) {
	f, echo := newServerWithTunnelOnly(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	for range 8 {
		slow := f.dial(t, echo)
		defer func() { _ = slow.Close() }()
		wg.Go(func() {
			for { // until the connection is closed
				if _, err := slow.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
		})
	}
	c := f.dial(t, echo)
	defer func() { _ = c.Close() }()
	text := bytes.Repeat([]byte("0123456789abcdef"), 4<<16)
	wg.Go(func() { _, _ = c.Write(text) })
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, text) {
		t.Errorf("beside slow readers: %v", err)
	}
}

// TestDeadlines checks that a connection through a tunnel implements deadlines, on which TLS relies.
func TestDeadlines(t *testing.T) {
	f, echo := newServerWithTunnelOnly(t)
	c := f.dial(t, echo)
	if _, err := io.WriteString(c, "a"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetWriteDeadline(time.Now())
	if _, err := io.WriteString(c, "b"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("written after the deadline: %v", err)
	}
	got := make([]byte, 1)
	if _, err := io.ReadFull(c, got); err != nil || got[0] != 'a' {
		t.Errorf("it is not read after the deadline for writing: %q, %v", got, err)
	}
	_ = c.SetWriteDeadline(time.Time{})
	if err := c.(*tunnelConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(c); err != nil {
		t.Errorf("the end of writing is not passed on: %q, %v", rest, err)
	}
	c = f.dial(t, echo)
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if n, err := c.Read(got); err == nil {
		t.Errorf("%d bytes after the deadline", n)
	}
}

// TestTunnelEndsWithCertificate checks that a tunnel is closed when the certificate that has opened it expires.
func TestTunnelEndsWithCertificate(t *testing.T) {
	f := newTunnelServer(t)
	f.run(t, "n", "127.0.0.1")
	first := f.waitForTunnel(t, "n", nil)
	if !first.expiry.Reset(0) {
		t.Fatal("nothing ends the tunnel")
	}
	f.waitForTunnel(t, "n", first)
}

// TestTunnelMetrics checks the metrics of tunnels and of dials.
func TestTunnelMetrics(t *testing.T) {
	f := newTunnelServer(t)
	echo := fmt.Sprintf("127.0.0.1:%d", startEchoServer(t))
	f.run(t, "n", "127.0.0.1")
	f.waitForTunnel(t, "n", nil)
	direct := f.dial(t, echo)
	f.route = refuseDial
	through := f.dial(t, echo)
	_, _ = f.Dial(t.Context(), "m", echo)
	registry := prometheus.NewRegistry()
	registry.MustRegister(f.Agents)
	all, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range all {
		for _, one := range m.Metric {
			got = append(got, fmt.Sprintf("%s %s %g", m.GetName(), one.Label[0].GetValue(),
				one.GetCounter().GetValue()+one.GetGauge().GetValue()))
		}
	}
	want := []string{"proa_node_dials_total direct 1", "proa_node_dials_total failed 1", "proa_node_dials_total tunnel 1",
		"proa_node_tunnel_streams n 1"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	_ = direct.Close()
	_ = through.Close()
}

func (f *tunnelServer) dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	c, err := f.Dial(t.Context(), "n", addr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// startEchoServer starts an echo server.
func startEchoServer(t *testing.T) (port int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait() // no connection is left open
	})
	return l.Addr().(*net.TCPAddr).Port
}
