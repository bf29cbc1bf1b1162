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

// selfSigned is a certificate as its file has it.
func selfSigned(t *testing.T, name string, ca bool, lasts time.Duration) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-48 * time.Hour),
		NotAfter: time.Now().Add(lasts),
		IsCA:     ca, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestCertsOfABundle holds that an authority is listed with those that are trusted beside it, and that only the one that signs
// is a matter for concern when it has expired.
func TestCertsOfABundle(t *testing.T) {
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
	heir, old := selfSigned(t, "heir", true, 24*3000*time.Hour+time.Minute), selfSigned(t, "old", true, -time.Hour)
	write("ca.crt", heir, old)
	write("apiserver.crt", selfSigned(t, "server", false, 24*300*time.Hour+time.Minute), heir)
	var out bytes.Buffer
	if err := listCerts(&command.Env{Out: &out}, c); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"ca (authority) heir", "3000 days ca (authority, trusted only) old", "expired apiserver server",
		"300 days"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Count(got, "heir") != 1 {
		t.Errorf("the chain of a certificate is listed:\n%s", out.String())
	}
	for _, p := range clusterstatus.Inspect(t.Context(), c).Problems {
		if strings.Contains(p, "expired") {
			t.Errorf("a former authority is a problem: %s", p)
		}
	}
	write("ca.crt", heir, []byte("-----BEGIN CERTIFICATE-----\nMIIB"))
	if err := listCerts(&command.Env{Out: &out}, c); err == nil ||
		!strings.Contains(err.Error(), "ca.crt is damaged after its last certificate") {
		t.Errorf("a damaged file: %v", err)
	}
}
