package run

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"time"

	"proa.dev/run/pki"
)

// CA returns the cluster's certificate authority.
func (s *Server) CA() *pki.Authority { return s.pki.CA() }

// Sign returns the client certificate for a certificate signing request in PEM. It is for callers in this process, which need no
// CertificateSigningRequest.
func (s *Server) Sign(request []byte) ([]byte, error) {
	block, _ := pem.Decode(request)
	if block == nil {
		return nil, errors.New("the request for a certificate is not PEM")
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, err
	}
	if err := csr.CheckSignature(); err != nil {
		return nil, err
	}
	now := time.Now()
	cert, err := s.pki.CA().Sign(&x509.Certificate{
		Subject: csr.Subject, DNSNames: csr.DNSNames, IPAddresses: csr.IPAddresses, NotBefore: now.Add(-5 * time.Minute),
		NotAfter: now.Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, csr.PublicKey, now)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw}), nil
}
