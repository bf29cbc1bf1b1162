package proxysync

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// FuzzCertificate checks that a Secret without an error has a certificate and a key.
func FuzzCertificate(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
		[]byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, crt, key []byte) {
		c, err := parseCertificate(&corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: crt, corev1.TLSPrivateKeyKey: key}})
		if err == nil && (len(c.Certificate) == 0 || c.PrivateKey == nil) {
			t.Error("a certificate that cannot be used")
		}
	})
}
