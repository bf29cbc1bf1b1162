package httpproxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestEndpointCertificates checks that a rule with CA certificates sends no request to an endpoint without a
// certificate for the name of the Service.
func TestEndpointCertificates(t *testing.T) {
	requests := 0
	server := func(name string) (url, ca string) {
		c := certFor(t, name)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests++
			_, _ = w.Write([]byte("hello"))
		}))
		s.TLS = &tls.Config{Certificates: []tls.Certificate{*c}}
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]}))
	}
	good, ca := server("web.ns.svc")
	otherName, otherCA := server("db.ns.svc")
	for _, x := range []struct {
		name, url, ca, names string
		code, requests       int
	}{
		{"the right certificate", good, ca, "", 200, 1},
		{"a certificate of another CA", good, otherCA, "", 502, 0},
		{"another name", otherName, otherCA, "", 502, 0},
		{"no CA is trusted", good, "none", "", 502, 0},
		{"no verification", otherName, "", "", 200, 1},
		{"one of the alternative names", otherName, otherCA, "cache.ns.svc db.ns.svc", 200, 1},
		{"none of the alternative names", otherName, otherCA, "cache.ns.svc spiffe://db.ns.svc", 502, 0},
		{"an alternative name, by another CA", otherName, ca, "db.ns.svc", 502, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := newTestProxy(t)
			ref := Ref{Namespace: "ns", Service: "web", Number: 80, Protocol: HTTPS, CA: x.ca, AltNames: x.names}
			f.pool(ref).Set(addresses(x.url))
			f.setRules(Rule{Match: Match{Path: "/"}, Owner: Owner{"ns", "web"}, Backends: []Backend{{Ref: ref, Weight: 1}}})
			requests = 0
			if code, text, _ := get(t, newClient(t), "http://"+f.http+"/"); code != x.code || requests != x.requests {
				t.Errorf("%d %q, and the endpoint got %d requests", code, text, requests)
			}
		})
	}
}

// TestClientCertificates checks that a section with client CAs refuses other clients, also over the connection of
// another section.
func TestClientCertificates(t *testing.T) {
	trusted, untrusted := certFor(t, "client.example.com"), certFor(t, "client.example.com")
	leaf, err := x509.ParseCertificate(trusted.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	clientCAs := x509.NewCertPool()
	clientCAs.AddCert(leaf)
	at := serveSections(t, true,
		Section{Host: "closed.example.com", Table: namedTable(t, "closed", Rule{}),
			Certificates: []*Certificate{certFor(t, "closed.example.com")}, ClientCAs: clientCAs},
		Section{Host: "open.example.com", Table: namedTable(t, "open", Rule{}),
			Certificates: []*Certificate{certFor(t, "open.example.com")}},
		Section{Host: "both.example.com", Table: namedTable(t, "both", Rule{}),
			Certificates: []*Certificate{certFor(t, "both.example.com")}, ClientCAs: clientCAs, Unverified: true})
	for _, x := range []struct {
		certificate *Certificate
		name, host  string
		code        int // 0 for no response
	}{
		{trusted, "closed.example.com", "closed.example.com", 200},
		{untrusted, "closed.example.com", "closed.example.com", 0},
		{nil, "closed.example.com", "closed.example.com", 0},
		{nil, "open.example.com", "open.example.com", 200},
		{nil, "open.example.com", "closed.example.com", http.StatusMisdirectedRequest},
		{untrusted, "both.example.com", "both.example.com", 200},
	} {
		c := &tls.Config{ServerName: x.name, InsecureSkipVerify: true}
		if x.certificate != nil {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return x.certificate, nil }
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: c, DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+at+"/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = x.host
		code := 0
		if resp, err := client.Do(req); err == nil {
			code = resp.StatusCode
			_ = resp.Body.Close()
		}
		if code != x.code {
			t.Errorf("%s over %s, with a certificate %t, which is trusted %t: %d, want %d",
				x.host, x.name, x.certificate != nil, x.certificate == trusted, code, x.code)
		}
	}
}
