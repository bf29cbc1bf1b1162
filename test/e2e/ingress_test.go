package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"proa.dev/test/ports"
)

// TestIngress reaches containers from outside the cluster by the host names of Ingresses.
func TestIngress(t *testing.T) {
	t.Parallel()
	bins := needNode(t)
	free := ports.Strings(t, 2)
	m := newMachine(t, bins, "--ingress-http-port", free[0], "--ingress-https-port", free[1])
	m.up()
	m.load(archives(t, "tool"))
	crt, key := ownCertificate(t, "tls.example.com")
	env := map[string]string{"HTTP": free[0], "HTTPS": free[1], "CRT": crt, "KEY": key}
	for _, path := range scripts(t, "testdata/ingress") {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { m.script(t, path, env).run() })
	}
}

// ownCertificate writes a self-signed certificate and its key.
func ownCertificate(t *testing.T, name string) (crt, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, kind string, data []byte) string {
		path := filepath.Join(t.TempDir(), file)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("tls.crt", "CERTIFICATE", der), write("tls.key", "PRIVATE KEY", text)
}
