package ingress

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// What annotations say is within its bounds, or a problem that names the annotation.
func FuzzOptions(f *testing.F) {
	f.Add("true", "30s", "10Mi", "GRPC", "/base")
	f.Add("yes", "-1h", "1e30", "gopher", "/a/../b")
	f.Fuzz(func(t *testing.T, redirect, timeout, size, protocol, rewrite string) {
		o, problems := parseOptions(map[string]string{annotationRedirect: redirect, annotationTimeout: timeout, annotationMaxBody: size,
			annotationProtocol: protocol, annotationRewrite: rewrite, "another.example/x": size})
		if o.filters.Timeout < 0 || o.filters.Timeout > longestTimeout || o.filters.MaxBody < 0 || len(o.filters.Rewrite) > longestRewrite {
			t.Errorf("out of bounds: %+v", o)
		}
		if r := o.filters.Rewrite; strings.Contains(r+"/", "/../") || strings.Contains(r, "//") || strings.ContainsAny(r, "%?#\\") {
			t.Errorf("a path with two meanings: %q", r)
		}
		for _, p := range problems {
			if !strings.HasPrefix(p, annotationPrefix) {
				t.Errorf("a problem of something else: %q", p)
			}
		}
	})
}

// A Secret has a certificate that can be used, or an error that does not show what is in it.
func FuzzCertificate(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"))
	f.Fuzz(func(t *testing.T, crt, key []byte) {
		c, err := ParseCertificate(&corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: crt, corev1.TLSPrivateKeyKey: key}})
		if err == nil && (len(c.Certificate) == 0 || c.PrivateKey == nil) {
			t.Error("a certificate that cannot be used")
		}
	})
}
