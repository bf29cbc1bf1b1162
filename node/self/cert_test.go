package self

import (
	"context"
	"crypto"
	"crypto/x509"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func keep(t *testing.T, file string, want func() *x509.CertificateRequest, by Issuer) *Certificate {
	t.Helper()
	c := &Certificate{File: file, Wanted: want, Issue: by, Log: slog.New(slog.DiscardHandler)}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRotation(t *testing.T) {
	begin := time.Unix(0, 0)
	leaf := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(100 * time.Hour)}
	for chance, want := range map[float64]time.Duration{0: 70 * time.Hour, 0.5: 80 * time.Hour, 1: 90 * time.Hour} {
		if got := rotation(leaf, chance).Sub(begin).Round(time.Second); got != want {
			t.Errorf("chance %v: after %s, want %s", chance, got, want)
		}
	}
}

func TestServingRequest(t *testing.T) {
	if r := ServingRequest("a", []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "a"}}); r != nil {
		t.Error("a request without an address")
	}
	r := ServingRequest("a", []corev1.NodeAddress{
		{Type: corev1.NodeHostName, Address: "10.0.0.3"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.2"}, {Type: corev1.NodeInternalIP, Address: "10.0.0.2"},
		{Type: corev1.NodeInternalIP, Address: "rubbish"}, {Type: corev1.NodeExternalDNS, Address: "x.example"},
	})
	if len(r.IPAddresses) != 2 || len(r.DNSNames) != 1 || r.DNSNames[0] != "x.example" {
		t.Errorf("%v %v", r.IPAddresses, r.DNSNames)
	}
}

// TestRubbishOnDisk is about files that were broken.
func TestRubbishOnDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.pem")
	for _, name := range []string{file, file + ".key"} {
		if err := os.WriteFile(name, []byte("rubbish"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := keep(t, file, func() *x509.CertificateRequest { return ClientRequest("a") }, func(context.Context, []byte, crypto.Signer) ([]byte, error) { return []byte("more"), nil })
	if c.Current() != nil {
		t.Error("rubbish is a certificate")
	}
	if err := c.Renew(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Error(err)
	}
}
