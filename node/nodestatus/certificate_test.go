package nodestatus

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func loadCertificate(t *testing.T, file string, want func() *x509.CertificateRequest, by Issuer) *Certificate {
	t.Helper()
	c := &Certificate{File: file, Wanted: want, Issue: by, Log: slog.New(slog.DiscardHandler)}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRenewalTime(t *testing.T) {
	begin := time.Unix(0, 0)
	leaf := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(100 * time.Hour)}
	for chance, want := range map[float64]time.Duration{0: 70 * time.Hour, 0.5: 80 * time.Hour, 1: 90 * time.Hour} {
		if got := renewalTime(leaf, chance).Sub(begin).Round(time.Second); got != want {
			t.Errorf("chance %v: after %s, want %s", chance, got, want)
		}
	}
}

func TestServingRequest(t *testing.T) {
	if r := ServingRequest("a", []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"}}); r != nil {
		t.Error("a request without an address")
	}
	r := ServingRequest("a", []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "10.0.0.3"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
		{Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
		{Type: corev1.NodeInternalIP, Address: "invalid"}, {Type: corev1.NodeExternalDNS, Address: "x.example"},
	})
	if len(r.IPAddresses) != 2 || len(r.DNSNames) != 1 || r.DNSNames[0] != "x.example" {
		t.Errorf("%v %v", r.IPAddresses, r.DNSNames)
	}
}

// TestDamagedFiles checks that damaged files are not used as a certificate.
func TestDamagedFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pem")
	for _, name := range []string{file, file + ".key"} {
		if err := os.WriteFile(name, []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := loadCertificate(t, file, func() *x509.CertificateRequest { return ClientRequest("a") },
		func(context.Context, []byte, crypto.Signer) ([]byte, error) { return []byte("more"), nil })
	if c.Current() != nil {
		t.Error("a damaged file is used")
	}
	if err := c.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Error(err)
	}
}

// TestCertificateOfFormerAuthorityIsRenewed checks that a stored certificate of an authority that no longer signs such
// certificates is renewed when the
// agent starts. If the authority still signs, because the server is older than the agent, the new one is kept.
func TestCertificateOfFormerAuthorityIsRenewed(t *testing.T) {
	former, present := newTestCA(t), newTestCA(t)
	pool := func() *x509.CertPool { return former.pool }
	want := func() *x509.CertificateRequest { return ClientRequest("a") }
	file := filepath.Join(t.TempDir(), "x.pem")
	first := loadCertificate(t, file, want, former.issue)
	if err := first.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, by := range []*testCA{former, present} {
		c := &Certificate{File: file, Wanted: want, Issue: by.issue, Log: slog.New(slog.DiscardHandler), FormerCAs: pool}
		if err := c.Load(); err != nil {
			t.Fatal(err)
		}
		if c.Current() == nil || time.Until(c.due()) > time.Second {
			t.Error("the certificate of a former authority is not replaced, or not used until then")
		}
		if err := c.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if time.Until(c.due()) < time.Minute {
			t.Error("the new certificate is replaced at once")
		}
	}
	c := &Certificate{File: file, Wanted: want, Log: slog.New(slog.DiscardHandler), FormerCAs: pool}
	if err := c.Load(); err != nil || time.Until(c.due()) < time.Minute {
		t.Error("the certificate of the present authority is replaced", err)
	}
}

// testCA is a certificate authority.
type testCA struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newTestCA(t *testing.T) *testCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Now().Add(-time.Minute),
		NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	i := &testCA{key: key, pool: x509.NewCertPool()}
	if i.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	i.pool.AddCert(i.cert)
	return i
}

func (i *testCA) issue(_ context.Context, request []byte, key crypto.Signer) ([]byte, error) {
	block, _ := pem.Decode(request)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: csr.Subject, NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
	}, i.cert, key.Public(), i.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
