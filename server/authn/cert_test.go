package authn

import (
	"crypto/elliptic"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestClientCertificate(t *testing.T) {
	w := newAuthnTest(t)
	u := expect(t, w, request("/api", w.ca.client("alice", "dev", "ops")), "alice[dev ops system:authenticated]")
	if id := u.GetExtra()["authentication.kubernetes.io/credential-id"]; len(id) != 1 || !strings.HasPrefix(id[0], "X509SHA256=") ||
		len(id[0]) != 75 {
		t.Errorf("credential id %v", id)
	}
	for _, tt := range []struct {
		name string
		cert *x509.Certificate
		want string
	}{
		{"another authority of the same name", newAuthority(t, "ca").client("admin", "system:masters"), "unknown authority"},
		{"the front proxy's authority", w.proxyCA.client("admin", "system:masters"), "unknown authority"},
		{"a serving certificate", w.ca.clientWithUsage(x509.ExtKeyUsageServerAuth, pkix.Name{CommonName: "server"}),
			"incompatible key usage"},
		{"no name", w.ca.client(""), "its common name is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) { expectRefused(t, w, request("/api", tt.cert), tt.want) })
	}
}

func TestCertificateUID(t *testing.T) {
	w := newAuthnTest(t)
	uid := func(values ...any) *x509.Certificate {
		subject := pkix.Name{CommonName: "alice"}
		for _, v := range values {
			subject.ExtraNames = append(subject.ExtraNames,
				pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}, Value: v})
		}
		return w.ca.clientWithUsage(x509.ExtKeyUsageClientAuth, subject)
	}
	expect(t, w, request("/api", uid("u-1")), "alice[system:authenticated] uid=u-1")
	expectRefused(t, w, request("/api", uid("u-1", "u-2")), "expected 1 UID, but found multiple")
	expectRefused(t, w, request("/api", uid("")), "UID cannot be an empty string")
}

// TestCertificateExpires checks that a certificate expires even when it is in the cache.
func TestCertificateExpires(t *testing.T) {
	w := newAuthnTest(t)
	cert := w.ca.client("alice")
	expect(t, w, request("/api", cert), "alice[system:authenticated]")
	w.now = w.now.Add(2 * time.Hour)
	expectRefused(t, w, request("/api", cert), "certificate has expired")
	w.now = w.now.Add(-2*time.Hour - 90*time.Minute)
	expectRefused(t, w, request("/api", w.ca.client("bob")), "not yet valid")
}

// TestIntermediateExpires checks that the cache holds a chain for as long as its shortest-lived part.
func TestIntermediateExpires(t *testing.T) {
	w := newAuthnTest(t)
	sub := &authority{t: t, key: newKey(t, elliptic.P256())}
	sub.cert = w.ca.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: "sub"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign, NotAfter: time.Now().Add(10 * time.Minute),
	}, w.ca.cert, sub.key)
	cert := sub.client("alice")
	expectRefused(t, w, request("/api", cert), "unknown authority")
	expect(t, w, request("/api", cert, sub.cert), "alice[system:authenticated]")
	w.now = w.now.Add(20 * time.Minute)
	expectRefused(t, w, request("/api", cert, sub.cert), "expired")
}

func TestTrustedCAsChange(t *testing.T) {
	w := newAuthnTest(t)
	cert, other := w.ca.client("alice"), newAuthority(t, "other")
	expect(t, w, request("/api", cert), "alice[system:authenticated]")
	w.SetTrust(other.pool, nil)
	expectRefused(t, w, request("/api", cert), "unknown authority")
	expect(t, w, request("/api", other.client("bob")), "bob[system:authenticated]")
	w.SetTrust(nil, nil)
	expectRefused(t, w, request("/api", cert), "no authority for client certificates is configured")
}

func TestBadCertificateWithGoodToken(t *testing.T) {
	w := newAuthnTest(t)
	r := bearer(w.token(t, IssueRequest{}))
	r.TLS.PeerCertificates = []*x509.Certificate{newAuthority(t, "x").client("alice")}
	expect(t, w, r, "system:serviceaccount:ns:app[system:serviceaccounts system:serviceaccounts:ns system:authenticated] uid=sa-uid")
}

func TestFrontProxy(t *testing.T) {
	w := newAuthnTest(t)
	sendAs := func(cert *x509.Certificate) *http.Request {
		r := request("/api", cert)
		r.Header["X-Remote-User"] = []string{"alice"}
		r.Header["X-Remote-Uid"] = []string{"u-1"}
		r.Header["X-Remote-Group"] = []string{"dev", "", "ops"}
		r.Header["X-Remote-Extra-Acme.com%2fproject"] = []string{"some-project"}
		r.Header["X-Remote-Extra-Scopes"] = []string{"openid", "profile"}
		return r
	}
	proxy := w.proxyCA.client("front-proxy-client")
	r := sendAs(proxy)
	u := expect(t, w, r, "alice[dev ops system:authenticated] uid=u-1")
	want := map[string][]string{"acme.com/project": {"some-project"}, "scopes": {"openid", "profile"}}
	if got := u.GetExtra(); !reflect.DeepEqual(got, want) {
		t.Errorf("extra %v", got)
	}
	if len(r.Header) != 0 {
		t.Errorf("headers left: %v", r.Header)
	}

	// Forged headers are ignored if the certificate has another authority or another name than the proxy.
	expect(t, w, sendAs(w.ca.client("bob")), "bob[system:authenticated]")
	expect(t, w, sendAs(w.ca.client("front-proxy-client")), "front-proxy-client[system:authenticated]")
	expectRefused(t, w, sendAs(w.proxyCA.client("somebody")), "unknown authority")
	expectRefused(t, w, sendAs(newAuthority(t, "front-proxy-ca").client("front-proxy-client")), "unknown authority")
	withoutHeaders := sendAs(proxy)
	withoutHeaders.TLS = nil
	expectRefused(t, w, withoutHeaders, ErrNoCredentials.Error())
	// The proxy itself is not a user.
	expectRefused(t, w, request("/api", proxy), "unknown authority")
	w.now = w.now.Add(2 * time.Hour)
	expectRefused(t, w, sendAs(proxy), "expired")
}

func TestCertificateCacheIsBounded(t *testing.T) {
	w := newAuthnTest(t)
	cert := w.ca.client("alice")
	tr := w.trust.Load()
	tr.verified = map[string]*certEntry{}
	for i := range maxCerts {
		tr.verified[string(rune(i))] = &certEntry{}
	}
	expect(t, w, request("/api", cert), "alice[system:authenticated]")
	if n := len(tr.verified); n != 1 {
		t.Errorf("%d certificates remembered", n)
	}
}

// TestCertificatesOverTLS uses crypto/tls and HTTP/2: one certificate is verified once, however many connections use it.
func TestCertificatesOverTLS(t *testing.T) {
	w := newAuthnTest(t)
	key := newKey(t, elliptic.P256())
	cert := w.ca.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "alice"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, w.ca.cert, key)
	serverKey := newKey(t, elliptic.P256())
	serverCert := w.ca.sign(&x509.Certificate{DNSNames: []string{"example.com"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, w.ca.cert, serverKey)
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		u, err := w.Request(r)
		if err != nil {
			http.Error(rw, err.Error(), http.StatusUnauthorized)
			return
		}
		_, _ = io.WriteString(rw, r.Proto+" "+show(u))
	}))
	srv.EnableHTTP2 = true
	srv.TLS = ServerTLS(func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &tls.Certificate{Certificate: [][]byte{serverCert.Raw}, PrivateKey: serverKey}, nil
	})
	srv.StartTLS()
	defer srv.Close()
	for range 3 {
		tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{
			RootCAs: w.ca.pool, ServerName: "example.com",
			Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw}, PrivateKey: key}},
		}}
		resp, err := (&http.Client{Transport: tr}).Get(srv.URL + "/api")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		tr.CloseIdleConnections()
		if got := string(body); got != "HTTP/2.0 alice[system:authenticated]" {
			t.Fatal(got)
		}
	}
	if n := len(w.trust.Load().verified); n != 1 {
		t.Errorf("%d certificates remembered, want 1", n)
	}
}

func BenchmarkCertificate(b *testing.B) {
	w := newAuthnTest(b, func(c *Config) { c.Now = nil })
	r := request("/api", w.ca.client("alice", "dev"))
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", "kubectl")
	r.Header.Set("Accept-Encoding", "gzip")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Request(r); err != nil {
			b.Fatal(err)
		}
	}
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	w := newAuthnTest(t, func(c *Config) { c.Now = nil })
	r := request("/api", w.ca.client("alice", "dev"))
	r.Header.Set("Accept", "application/json")
	if n := testing.AllocsPerRun(100, func() { _, _ = w.Request(r) }); n != 0 {
		t.Errorf("%v allocations for a known certificate", n)
	}
}
