package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"time"
)

// Authority is a certificate authority.
type Authority struct {
	// Cert is the certificate that signs.
	Cert *x509.Certificate
	// Key belongs to Cert.
	Key crypto.Signer
	// PEM is the whole bundle: Cert first, then the authorities that are trusted as well during a rotation.
	PEM []byte
	// Pool trusts every certificate of the bundle.
	Pool *x509.CertPool
}

// Pair is a certificate and its key, as PEM and parsed.
type Pair struct {
	Cert    *x509.Certificate
	Key     crypto.Signer
	CertPEM []byte
	KeyPEM  []byte
}

// TLS returns the pair for crypto/tls.
func (p *Pair) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{p.Cert.Raw}, PrivateKey: p.Key, Leaf: p.Cert}
}

// Sign completes the template (serial number, start, an end within the life of the authority) and signs it for pub. A
// zero template.NotAfter means one year.
func (a *Authority) Sign(template *x509.Certificate, pub crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	t := *template
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t.SerialNumber = serial
	t.NotBefore = now.Add(-backdate).UTC()
	if t.NotAfter.IsZero() {
		t.NotAfter = now.Add(leafLife)
	}
	// A leaf that outlives its issuer fails at verification with a misleading error.
	if t.NotAfter.After(a.Cert.NotAfter) {
		t.NotAfter = a.Cert.NotAfter
	}
	t.NotAfter = t.NotAfter.UTC()
	t.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, &t, a.Cert, pub, a.Key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate for %q: %w", t.Subject.CommonName, err)
	}
	return x509.ParseCertificate(der)
}

func (a *Authority) client(name string, groups []string, now time.Time) (*Pair, error) {
	return a.pair(clientTemplate(name, groups), now)
}

func (a *Authority) server(name string, groups []string, hosts hostSet, now time.Time) (*Pair, error) {
	return a.pair(serverTemplate(name, groups, hosts), now)
}

func (a *Authority) pair(template *x509.Certificate, now time.Time) (*Pair, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	cert, err := a.Sign(template, key.Public(), now)
	if err != nil {
		return nil, err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &Pair{Cert: cert, Key: key, CertPEM: encodeCert(cert), KeyPEM: keyPEM}, nil
}

func clientTemplate(name string, groups []string) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
}

func serverTemplate(name string, groups []string, hosts hostSet) *x509.Certificate {
	return &x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    hosts.names,
		IPAddresses: hosts.netIPs(),
	}
}

// selfSign makes the certificate of an authority from its key.
func selfSign(name string, key crypto.Signer, now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: name},
		DNSNames:              []string{name},
		NotBefore:             now.Add(-backdate).UTC(),
		NotAfter:              now.Add(caLife).UTC(),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign certificate authority %q: %w", name, err)
	}
	return x509.ParseCertificate(der)
}

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	return key, nil
}

// derive makes a key for a purpose from another key. The result is always the same, and reveals nothing about the other
// key.
func derive(from crypto.Signer, purpose string) (*ecdsa.PrivateKey, error) {
	secret, err := x509.MarshalPKCS8PrivateKey(from)
	if err != nil {
		return nil, err
	}
	for try := range 100 { // not every number is a key of the curve, but nearly every one
		number, err := hkdf.Key(sha256.New, secret, nil, purpose+" "+strconv.Itoa(try), 32)
		if err != nil {
			return nil, err
		}
		if key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), number); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("no number that was tried is a key")
}

// newSerial returns a random positive number of 127 bits, which is unique without a register.
func newSerial() (*big.Int, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return nil, fmt.Errorf("make serial number: %w", err)
	}
	b[0] &= 0x7f
	b[15] |= 1
	return new(big.Int).SetBytes(b[:]), nil
}

// samePublicKey tells whether the certificate was made for the key.
func samePublicKey(cert *x509.Certificate, key crypto.Signer) bool {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	return err == nil && bytes.Equal(der, cert.RawSubjectPublicKeyInfo)
}
