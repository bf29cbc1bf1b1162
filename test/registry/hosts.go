package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// Mirror writes the files by which containerd asks this registry whenever an
// image of the host is pulled: hosts.toml, and the certificate authority if
// there is one, in a folder of the host's name below dir, the certs.d folder of
// containerd. Nothing else is asked for that host.
func (r *Registry) Mirror(dir, host string) error {
	folder := filepath.Join(dir, host)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	// A table of mirrors would be tried besides the server, so that every failure would come twice.
	text := fmt.Sprintf("server = %q\ncapabilities = [\"pull\", \"resolve\"]\n", r.URL())
	if r.ca != nil {
		ca := filepath.Join(folder, "ca.crt")
		if err := os.WriteFile(ca, r.ca, 0o644); err != nil {
			return err
		}
		text += fmt.Sprintf("ca = %q\n", ca)
	}
	return os.WriteFile(filepath.Join(folder, "hosts.toml"), []byte(text), 0o644)
}

// certificate makes a certificate authority and a certificate of it for a host.
func certificate(host string) (tls.Certificate, []byte, error) {
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test registry CA"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	caData, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "test registry"}, NotBefore: now.Add(-time.Hour),
		NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := net.ParseIP(host); ip != nil {
		leaf.IPAddresses = append(leaf.IPAddresses, ip)
	}
	data, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	return tls.Certificate{Certificate: [][]byte{data},
		PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caData}), nil
}
