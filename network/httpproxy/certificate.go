package httpproxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"strings"
	"sync"
	"time"
)

// Certificate is a certificate with its key.
type Certificate = tls.Certificate

// tls returns the TLS configuration for clients.
func (p *Proxy) tls() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: p.certificate}
}

// certificate returns the certificate for the server name of a client: that of the name, that of its wildcard, the
// default certificate, or the self-signed fallback.
func (p *Proxy) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	certs := *p.certs.Load()
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if c := certs[name]; c != nil && name != "" {
		return c, nil
	}
	if _, rest, ok := strings.Cut(name, "."); ok {
		if c := certs["*."+rest]; c != nil {
			return c, nil
		}
	}
	if c := certs[""]; c != nil {
		return c, nil
	}
	return p.fallback.get(time.Now())
}

// fallback is a self-signed certificate for names without a certificate.
type fallback struct {
	mu    sync.Mutex // guards what follows
	cert  *tls.Certificate
	until time.Time
}

const fallbackFor = 90 * 24 * time.Hour

func (f *fallback) get(now time.Time) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cert != nil && now.Before(f.until) {
		return f.cert, nil
	}
	c, err := selfMade(now)
	if err != nil {
		return nil, fmt.Errorf("make a certificate: %w", err)
	}
	f.cert, f.until = c, now.Add(fallbackFor/2)
	return c, nil
}

func selfMade(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "proa: no certificate for this name"}, DNSNames: []string{"fallback.invalid"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(fallbackFor),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
