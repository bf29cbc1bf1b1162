package cli

import (
	"bytes"
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

	"proa.dev/cli/clusterstatus"
	"proa.dev/cli/command"
	"proa.dev/cli/localcluster"
)

// selfSigned returns a self-signed certificate in PEM.
func selfSigned(t *testing.T, name string, ca bool, validity time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter: time.Now().Add(validity),
		IsCA:     ca, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestCertsOfCABundle checks that all CAs of a bundle are listed, and that an expired CA is a problem only if it is the one that
// signs.
func TestCertsOfCABundle(t *testing.T) {
	c := localcluster.Cluster{Dir: t.TempDir()}
	if err := os.MkdirAll(c.Path("pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(name string, parts ...[]byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(c.Path("pki"), name), bytes.Join(parts, nil), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	current, old := selfSigned(t, "successor", true, 24*3000*time.Hour+time.Minute), selfSigned(t, "old", true, -time.Hour)
	write("ca.crt", current, old)
	write("apiserver.crt", selfSigned(t, "server", false, 24*300*time.Hour+time.Minute), current)
	var out bytes.Buffer
	if err := listCerts(&command.Env{Out: &out}, c); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"ca (authority) successor", "3000 days ca (authority, trusted only) old", "expired apiserver server",
		"300 days"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Count(got, "successor") != 1 {
		t.Errorf("the chain of a certificate is listed:\n%s", out.String())
	}
	for _, p := range clusterstatus.Inspect(t.Context(), c).Problems {
		if strings.Contains(p, "expired") {
			t.Errorf("a former authority is a problem: %s", p)
		}
	}
	write("ca.crt", current, []byte("-----BEGIN CERTIFICATE-----\nMIIB"))
	if err := listCerts(&command.Env{Out: &out}, c); err == nil ||
		!strings.Contains(err.Error(), "ca.crt is damaged after its last certificate") {
		t.Errorf("a damaged file: %v", err)
	}
}
