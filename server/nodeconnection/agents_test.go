package nodeconnection

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
)

// authority signs certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	age  time.Duration // of the certificates that it signs
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	cert := a.sign(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		Subject: pkix.Name{CommonName: "ca"}})
	a.key = cert.PrivateKey.(*ecdsa.PrivateKey)
	var err error
	if a.cert, err = x509.ParseCertificate(cert.Certificate[0]); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) sign(c *x509.Certificate) *tls.Certificate {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.t.Fatal(err)
	}
	now := time.Now().Add(-a.age)
	c.SerialNumber, c.NotBefore, c.NotAfter = serial, now.Add(-time.Hour), now.Add(time.Hour)
	if c.IsCA {
		c.NotBefore = now.Add(-24 * time.Hour)
	}
	parent, by := c, key
	if a.cert != nil {
		parent, by = a.cert, a.key
	}
	raw, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}
}

func (a *authority) named(name, group string) *tls.Certificate {
	return a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: []string{group}},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(127, 0, 0, 9)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

func node(name, address string, port int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "name"}, {Type: corev1.NodeInternalIP, Address: address}}
	return n
}

func get(t *testing.T, a *Agents, n *corev1.Node) string {
	t.Helper()
	at, by, err := a.Agent(n)
	if err != nil {
		return err.Error()
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at.String()+"/x", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := by.RoundTrip(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

func TestAgentsOfOtherNodes(t *testing.T) {
	ca := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	caller := ca.named("kube-apiserver-kubelet-client", "system:masters")
	a := New(Config{Log: slog.New(slog.DiscardHandler), Certificate: func() (*tls.Certificate, error) { return caller, nil },
		CAs: func() *x509.CertPool { return pool }})
	own := serveAgent(t, ca.named("system:node:n", "system:nodes"))
	for _, test := range []struct {
		name string
		node *corev1.Node
		want string
	}{
		{"its own agent", node("n", "127.0.0.1", own), "kube-apiserver-kubelet-client asks for /x"},
		{"the agent of another", node("m", "127.0.0.1", own), `at the address of node m is "system:node:n", not its agent`},
		{"the API server", node("n", "127.0.0.1", serveAgent(t, ca.named("kube-apiserver", ""))),
			`at the address of node n is "kube-apiserver", not its agent`},
		{"a client that only has the name of the agent", node("n", "127.0.0.1", serveAgent(t, ca.named("system:node:n", "others"))),
			`at the address of node n is "system:node:n", not its agent`},
		{"an agent of another authority", node("n", "127.0.0.1", serveAgent(t, newAuthority(t).named("system:node:n", "system:nodes"))),
			"certificate signed by unknown authority"},
		{"no port", node("n", "127.0.0.1", 0), `no node agent is connected for node "n"`},
		{"only a DNS name", node("n", "other.name", own), `no node agent is connected for node "n"`},
	} {
		if got := get(t, a, test.node); !strings.Contains(got, test.want) {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// TestStreamsToOtherNodes checks that connections that become streams, which are dialed in another way, present and verify
// the same certificates.
func TestStreamsToOtherNodes(t *testing.T) {
	ca := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	caller := ca.named("kube-apiserver-kubelet-client", "system:masters")
	a := New(Config{Log: slog.New(slog.DiscardHandler), Certificate: func() (*tls.Certificate, error) { return caller, nil },
		CAs: func() *x509.CertPool { return pool }})
	h := httptest.NewUnstartedServer(websocket.Handler(func(ws *websocket.Conn) {
		_, _ = io.WriteString(ws, ws.Request().TLS.PeerCertificates[0].Subject.CommonName)
	}))
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	h.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*ca.named("system:node:n", "system:nodes")},
		ClientAuth: tls.RequireAnyClientCert}
	h.StartTLS()
	defer h.Close()
	_, text, _ := net.SplitHostPort(h.Listener.Addr().String())
	port, _ := strconv.Atoi(text)
	for name, want := range map[string]string{"n": "kube-apiserver-kubelet-client", "m": "not its agent"} {
		at, by, err := a.Agent(node(name, "127.0.0.1", port))
		if err != nil {
			t.Fatal(err)
		}
		var lastError atomic.Value
		front := httptest.NewServer(proxy.NewUpgradeAwareHandler(at, by, false, true, errorRecorder{&lastError}))
		ws, err := websocket.Dial("ws"+strings.TrimPrefix(front.URL, "http"), "", "http://here")
		got := fmt.Sprint(err)
		if err == nil {
			text, _ := io.ReadAll(ws)
			got = string(text)
		} else if e := new(websocket.DialError); errors.As(err, &e) {
			got = lastError.Load().(string)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		front.Close()
	}
}

// errorRecorder records the last failure.
type errorRecorder struct{ last *atomic.Value }

func (s errorRecorder) Error(w http.ResponseWriter, _ *http.Request, err error) {
	s.last.Store(err.Error())
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func TestAgentInSameProcess(t *testing.T) {
	a := New(Config{Log: slog.New(slog.DiscardHandler)})
	respond := func(text string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, text+r.URL.Path) })
	}
	unregister, err := a.Join("n", respond("inside"))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := get(t, a, node("n", "192.0.2.1", 1)); got != "inside/x" {
			t.Errorf("got %s", got)
		}
	}
	if got := get(t, a, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); got != "inside/x" {
		t.Errorf("without an address: %s", got)
	}
	if _, err := a.Join("n", respond("again")); err == nil {
		t.Error("two agents of one node")
	}
	_, by, err := a.Agent(node("n", "192.0.2.1", 1))
	if err != nil {
		t.Fatal(err)
	}
	unregister()
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://n/x", nil)
	if resp, err := by.RoundTrip(req); err == nil {
		_ = resp.Body.Close()
		t.Error("an agent that has left answers")
	}
	unregister()
	again, err := a.Join("n", respond("again"))
	if err != nil {
		t.Fatal(err)
	}
	defer again()
	if got := get(t, a, node("n", "192.0.2.1", 1)); got != "again/x" {
		t.Errorf("after a new start: %s", got)
	}
}
