package httpproxy

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestEndpointsProveWhoTheyAre checks that a rule with CA certificates sends no request to an endpoint without a
// certificate for the name of the Service.
func TestEndpointsProveWhoTheyAre(t *testing.T) {
	asked := 0
	server := func(name string) (url, ca string) {
		c := certFor(t, name)
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
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
		code, asked          int
	}{
		{"the right one", good, ca, "", 200, 1},
		{"the certificate of somebody else", good, otherCA, "", 502, 0},
		{"another name", otherName, otherCA, "", 502, 0},
		{"nobody is trusted", good, "none", "", 502, 0},
		{"nothing is asked", otherName, "", "", 200, 1},
		{"one of the names that it may have", otherName, otherCA, "cache.ns.svc db.ns.svc", 200, 1},
		{"none of the names that it may have", otherName, otherCA, "cache.ns.svc spiffe://db.ns.svc", 502, 0},
		{"the name, by somebody else", otherName, ca, "db.ns.svc", 502, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := newFront(t)
			ref := Ref{Namespace: "ns", Service: "web", Number: 80, Protocol: HTTPS, CA: x.ca, AltNames: x.names}
			f.pool(ref).Set(addresses(x.url))
			f.swap(Rule{Match: Match{Path: "/"}, Owner: Owner{"ns", "web"}, Backends: []Backend{{Ref: ref, Weight: 1}}})
			asked = 0
			if code, text, _ := get(t, clientOf(t), "http://"+f.http+"/"); code != x.code || asked != x.asked {
				t.Errorf("%d %q, and %d requests came", code, text, asked)
			}
		})
	}
}

// TestClientsProveWhoTheyAre checks that a section with client CAs refuses other clients, also over the connection of
// another section.
func TestClientsProveWhoTheyAre(t *testing.T) {
	known, stranger := certFor(t, "client.example.com"), certFor(t, "client.example.com")
	leaf, err := x509.ParseCertificate(known.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	trusted := x509.NewCertPool()
	trusted.AddCert(leaf)
	at := gate(t, true,
		Section{Host: "closed.example.com", Table: named(t, "closed", Rule{}),
			Certificates: []*Certificate{certFor(t, "closed.example.com")}, ClientCAs: trusted},
		Section{Host: "open.example.com", Table: named(t, "open", Rule{}), Certificates: []*Certificate{certFor(t, "open.example.com")}},
		Section{Host: "both.example.com", Table: named(t, "both", Rule{}), Certificates: []*Certificate{certFor(t, "both.example.com")},
			ClientCAs: trusted, Unverified: true})
	for _, x := range []struct {
		who        *Certificate
		name, host string
		code       int // 0 for no answer
	}{
		{known, "closed.example.com", "closed.example.com", 200},
		{stranger, "closed.example.com", "closed.example.com", 0},
		{nil, "closed.example.com", "closed.example.com", 0},
		{nil, "open.example.com", "open.example.com", 200},
		{nil, "open.example.com", "closed.example.com", http.StatusMisdirectedRequest},
		{stranger, "both.example.com", "both.example.com", 200},
	} {
		c := &tls.Config{ServerName: x.name, InsecureSkipVerify: true}
		if x.who != nil {
			c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return x.who, nil }
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
			t.Errorf("%s over %s, with a certificate %t, which is known %t: %d, want %d", x.host, x.name, x.who != nil, x.who == known,
				code, x.code)
		}
	}
}
