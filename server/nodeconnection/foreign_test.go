package nodeconnection

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// serveAgent serves with a certificate in place of an agent, and returns the port.
func serveAgent(t *testing.T, c *tls.Certificate) (port int) {
	t.Helper()
	h := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].Subject.CommonName+" asks for "+r.URL.Path)
	}))
	h.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	h.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*c}, ClientAuth: tls.RequireAnyClientCert}
	h.StartTLS()
	t.Cleanup(h.Close)
	_, text, _ := net.SplitHostPort(h.Listener.Addr().String())
	port, _ = strconv.Atoi(text)
	return port
}

// TestForeignKubelets checks for which nodes a certificate of no authority of the cluster is accepted, and that an exception never
// leads to what has a certificate of the cluster: a Node with the address of the API server or of another agent would have requests
// made there with the rights of an administrator.
func TestForeignKubelets(t *testing.T) {
	ca := newAuthority(t)
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	caller := ca.named("kube-apiserver-kubelet-client", "system:masters")
	selfSigned, other := newAuthority(t).named("kubelet", ""), newAuthority(t).named("kubelet", "")
	sum := sha256.Sum256(selfSigned.Certificate[0])
	a := New(Config{Log: slog.New(slog.DiscardHandler), Certificate: func() (*tls.Certificate, error) { return caller, nil },
		CAs: func() *x509.CertPool { return pool }, Foreign: []ForeignKubelet{
			{Node: "pinned", Fingerprint: hex.EncodeToString(sum[:])}, {Node: "kwok-*"},
		}})
	const answered, refused = "asks for /x", "certificate signed by unknown authority"
	foreign := serveAgent(t, selfSigned)
	api := serveAgent(t, ca.named("kube-apiserver", ""))
	ca.age = 2 * time.Hour
	expired := serveAgent(t, ca.named("kube-apiserver", ""))
	ca.age = 0
	for _, c := range []struct {
		name, node string
		port       int
		want       string
	}{
		{"a pinned certificate", "pinned", foreign, answered},
		{"another certificate at a pinned node", "pinned", serveAgent(t, other), "has a certificate with the fingerprint sha256:"},
		{"a node of a pattern", "kwok-17", foreign, answered},
		{"a node without an exception", "other", foreign, refused},
		{"a name that only begins so", "kwok", foreign, refused},
		{"the API server", "kwok-1", api, `at the address of node kwok-1 is "kube-apiserver", not its agent`},
		{"the API server with an expired certificate", "kwok-1", expired, "certificate has expired"},
		{"the agent of another node", "kwok-1", serveAgent(t, ca.named("system:node:n", "system:nodes")), "not its agent"},
		{"its own agent", "kwok-1", serveAgent(t, ca.named("system:node:kwok-1", "system:nodes")), answered},
	} {
		if got := get(t, a, node(c.node, "127.0.0.1", c.port)); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		for _, r := range a.remote {
			r.CloseIdleConnections()
		}
	}
}
