package certificate

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
)

func TestLife(t *testing.T) {
	day := 24 * time.Hour
	for _, c := range []struct {
		seconds *int32
		want    time.Duration
	}{
		{nil, day}, {new(int32(3600)), time.Hour}, {new(int32(2 * 86400)), day}, {new(int32(60)), 10 * time.Minute},
		{new(int32(600)), 10 * time.Minute},
	} {
		if got := validity(day, c.seconds); got != c.want {
			t.Errorf("%v: %v", c.seconds, got)
		}
	}
}

func TestSign(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	by := authority(t, now.Add(1000*time.Hour))
	by.now = now
	uri, err := url.Parse("spiffe://a/b")
	if err != nil {
		t.Fatal(err)
	}
	request, err := parse(requestPEM(t, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "jane", Organization: []string{"devs", "ops"}}, DNSNames: []string{"a.example"},
		EmailAddresses: []string{"a@b.c"},
		IPAddresses:    []net.IP{net.IPv4(10, 0, 0, 1)}, URIs: []*url.URL{uri},
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{1, 2, 3, 4}, Value: []byte("x")}},
	}))
	if err != nil {
		t.Fatal(err)
	}
	issue := func(life time.Duration, usages ...certificatesv1.KeyUsage) (*x509.Certificate, error) {
		text, err := sign(request, usages, life, by)
		if err != nil {
			return nil, err
		}
		block, rest := pem.Decode(text)
		if block.Type != "CERTIFICATE" || len(rest) > 0 {
			t.Fatalf("%s", text)
		}
		return x509.ParseCertificate(block.Bytes)
	}
	cert, err := issue(100*time.Hour, "client auth", "digital signature", "key encipherment", "server auth", "client auth")
	if err != nil {
		t.Fatal(err)
	}
	if err := cert.CheckSignatureFrom(by.cert); err != nil {
		t.Error(err)
	}
	if cert.Subject.CommonName != "jane" ||
		!slices.Equal(slices.Sorted(slices.Values(cert.Subject.Organization)), []string{"devs", "ops"}) ||
		!slices.Equal(cert.DNSNames, []string{"a.example"}) || !slices.Equal(cert.EmailAddresses, []string{"a@b.c"}) ||
		len(cert.IPAddresses) != 1 || cert.IPAddresses[0].String() != "10.0.0.1" || len(cert.URIs) != 1 ||
		cert.URIs[0].String() != "spiffe://a/b" {
		t.Errorf("it is for %v %v %v %v %v", cert.Subject, cert.DNSNames, cert.EmailAddresses, cert.IPAddresses, cert.URIs)
	}
	if cert.KeyUsage != x509.KeyUsageDigitalSignature|x509.KeyUsageKeyEncipherment ||
		!slices.Equal(cert.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}) {
		t.Errorf("usages: %v %v", cert.KeyUsage, cert.ExtKeyUsage)
	}
	if cert.IsCA || !cert.BasicConstraintsValid {
		t.Error("it is a certificate authority")
	}
	for _, e := range cert.Extensions {
		if e.Id.String() == "1.2.3.4" {
			t.Error("it has the extension that the request asks for")
		}
	}
	for _, c := range []struct{ life, begin, end time.Duration }{
		{100 * time.Hour, -5 * time.Minute, 100*time.Hour - 5*time.Minute},
		{8 * time.Hour, -5 * time.Minute, 8*time.Hour - 5*time.Minute},
		{time.Hour, -5 * time.Minute, time.Hour},
		{2000 * time.Hour, -5 * time.Minute, 1000 * time.Hour}, // the certificate authority expires before
	} {
		cert, err := issue(c.life)
		if err != nil || cert.NotBefore.Sub(now) != c.begin || cert.NotAfter.Sub(now) != c.end {
			t.Errorf("life %v: %v to %v, %v", c.life, cert.NotBefore, cert.NotAfter, err)
		}
	}
	if _, err := issue(time.Hour, "client auth", "flying"); err == nil || err.Error() != `unrecognized usage values: ["flying"]` {
		t.Error(err)
	}
	by.now = by.cert.NotAfter
	if _, err := issue(time.Hour); err == nil ||
		!strings.HasPrefix(err.Error(), "refusing to sign a certificate that expired in the past") {
		t.Error(err)
	}
	by.now = now
	request.Signature[len(request.Signature)-1] ^= 1
	if _, err := issue(time.Hour); err == nil || !strings.HasPrefix(err.Error(), "unable to verify certificate request signature") {
		t.Error(err)
	}
}
