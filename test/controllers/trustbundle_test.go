package controllers

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"proa.dev/control/controltest"
	"proa.dev/control/trustbundle"
)

func TestTrustBundle(t *testing.T) {
	t.Parallel()
	bundle := trustbundleAuthority(t)
	controltest.Scripts(t, "../../control/trustbundle/testdata/*.txt", trustbundle.APIServer(func() string { return bundle }),
		trustbundle.Agents(func() string { return bundle }))
}

// trustbundleAuthority is a constant certificate, so that the hash in the name of its bundle is constant, too.
func trustbundleAuthority(t *testing.T) string {
	t.Helper()
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotBefore: time.Unix(0, 0).UTC(),
		NotAfter: time.Unix(1<<32, 0).UTC(),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}
