package ingress

import (
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"proa.dev/network/httpproxy"
)

// caCertificates returns the CA certificates of a Secret, as PEM.
func caCertificates(secret *corev1.Secret) (string, error) {
	if secret == nil {
		return "", errors.New("there is none")
	}
	pem := secret.Data[corev1.ServiceAccountRootCAKey]
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return "", fmt.Errorf("there is no certificate in its %s", corev1.ServiceAccountRootCAKey)
	}
	return string(pem), nil
}

// certificateWarning returns what clients may reject a certificate for, or "". The certificate is used nevertheless.
func certificateWarning(c *httpproxy.Certificate, host string, now time.Time) string {
	switch {
	case c.Leaf == nil:
		return ""
	case now.After(c.Leaf.NotAfter):
		return "it has expired on " + c.Leaf.NotAfter.UTC().Format(time.DateOnly)
	case host != "" && c.Leaf.VerifyHostname(host) != nil && !namesWildcard(c, host):
		return fmt.Sprintf("it is not for %s", host)
	}
	return ""
}

// namesWildcard reports whether a certificate has a wildcard host among its names, literally.
func namesWildcard(c *httpproxy.Certificate, host string) bool {
	for _, name := range c.Leaf.DNSNames {
		if name == host {
			return true
		}
	}
	return false
}
