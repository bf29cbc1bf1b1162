package run

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"testing"

	"proa.dev/run/pki"
)

// TestKubeletServingCertificatesHaveTheirOwnCA checks that the serving certificate of an agent is trusted by the server when it
// connects to agents, and by no client of the API.
func TestKubeletServingCertificatesHaveTheirOwnCA(t *testing.T) {
	k, err := pki.Ensure(t.TempDir(), pki.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{pki: k}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader,
		&x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:a"}, DNSNames: []string{"a"}}, key)
	if err != nil {
		t.Fatal(err)
	}
	agents := s.agentTrust.pool(k.CA(), k.KubeletCA())
	for usage, trusted := range map[x509.ExtKeyUsage][2]bool{x509.ExtKeyUsageServerAuth: {false, true},
		x509.ExtKeyUsageClientAuth: {true, false}} {
		serving, err := k.Server("system:node:a", nil, []string{"a"})
		if err != nil {
			t.Fatal(err)
		}
		text := serving.CertPEM
		if usage == x509.ExtKeyUsageClientAuth {
			if text, err = s.Sign(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})); err != nil {
				t.Fatal(err)
			}
		}
		certs, err := pki.DecodeCerts(text)
		if err != nil {
			t.Fatal(err)
		}
		for i, pool := range []*x509.CertPool{k.CA().Pool, k.KubeletCA().Pool} {
			if _, err := certs[0].Verify(x509.VerifyOptions{Roots: pool,
				KeyUsages: []x509.ExtKeyUsage{usage}}); (err == nil) != trusted[i] {
				t.Errorf("usage %v, authority %d: %v", usage, i, err)
			}
		}
		// Agents of earlier versions have serving certificates of the cluster's CA.
		if _, err := certs[0].Verify(x509.VerifyOptions{Roots: agents, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
			t.Errorf("the server does not trust an agent: %v", err)
		}
	}
	if s.agentTrust.pool(k.CA(), k.KubeletCA()) != agents {
		t.Error("the pool is another one though the authorities are the same: connections to agents would not be kept")
	}
}
