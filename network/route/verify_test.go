package route

import (
	"crypto/tls"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestEndpointsProveWhoTheyAre: where a rule says whom to trust, an endpoint without a certificate of theirs for the name of the Service gets
// no request.
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
		name, url, ca string
		code, asked   int
	}{
		{"the right one", good, ca, 200, 1},
		{"the certificate of somebody else", good, otherCA, 502, 0},
		{"another name", otherName, otherCA, 502, 0},
		{"nobody is trusted", good, "none", 502, 0},
		{"nothing is asked", otherName, "", 200, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := newFront(t)
			ref := Ref{Namespace: "ns", Service: "web", Number: 80, Protocol: HTTPS, CA: x.ca}
			f.pool(ref).Set(addresses(x.url))
			f.swap(Rule{Match: Match{Path: "/"}, Owner: Owner{"ns", "web"}, Backends: []Backend{{Ref: ref, Weight: 1}}})
			asked = 0
			if code, text, _ := get(t, clientOf(t), "http://"+f.http+"/"); code != x.code || asked != x.asked {
				t.Errorf("%d %q, and %d requests came", code, text, asked)
			}
		})
	}
}
