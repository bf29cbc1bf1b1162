package certificates

import (
	"encoding/pem"
	"testing"
)

// FuzzPEM checks that data which is no PEM of the wanted kind is refused.
func FuzzPEM(f *testing.F) {
	f.Add("CERTIFICATE REQUEST", []byte{0x30, 0})
	f.Add("CERTIFICATE", []byte{0x30, 0x82, 1, 1})
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, kind string, der []byte) {
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := parseRequest(text); err == nil && kind != "CERTIFICATE REQUEST" {
			t.Errorf("a %q was taken for a request", kind)
		}
		if err := parseCertificates(text); err == nil && len(text) > 0 && kind != "CERTIFICATE" {
			t.Errorf("a %q was taken for a certificate", kind)
		}
		_, _ = parseRequest(der), parseCertificates(der)
	})
}
