package ingress

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/network/route"
)

// secrets keeps certificates that were read, so that each version of a Secret is parsed once.
type secrets struct{ read map[types.UID]parsed }

type parsed struct {
	version string
	cert    *route.Certificate
	err     error
}

// load reads the certificate of a Secret.
func (s *secrets) load(secret *corev1.Secret) (*route.Certificate, error) {
	p, ok := s.read[secret.UID]
	if !ok || p.version != secret.ResourceVersion {
		p = parsed{version: secret.ResourceVersion}
		p.cert, p.err = ParseCertificate(secret)
		s.read[secret.UID] = p
	}
	return p.cert, p.err
}

// keep forgets all but some.
func (s *secrets) keep(used map[types.UID]bool) {
	for uid := range s.read {
		if !used[uid] {
			delete(s.read, uid)
		}
	}
}

// ParseCertificate reads the certificate and key of a Secret.
func ParseCertificate(secret *corev1.Secret) (*route.Certificate, error) {
	crt, key := secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey]
	if len(crt) == 0 || len(key) == 0 {
		return nil, fmt.Errorf("it needs %s and %s", corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	}
	c, err := tls.X509KeyPair(crt, key)
	if err != nil {
		return nil, errors.New("its certificate and key cannot be used together, or are not PEM") // the cause could quote the key
	}
	return &c, nil
}

// trusted are the certificates that a Secret says to trust.
func trusted(secret *corev1.Secret) (string, error) {
	if secret == nil {
		return "", errors.New("there is none")
	}
	pem := secret.Data[corev1.ServiceAccountRootCAKey]
	if !x509.NewCertPool().AppendCertsFromPEM(pem) {
		return "", fmt.Errorf("there is no certificate in its %s", corev1.ServiceAccountRootCAKey)
	}
	return string(pem), nil
}

// doubts is what is wrong with a certificate that can be used nevertheless.
func doubts(c *route.Certificate, host string, now time.Time) string {
	switch {
	case c.Leaf == nil:
		return ""
	case now.After(c.Leaf.NotAfter):
		return "it has expired on " + c.Leaf.NotAfter.UTC().Format(time.DateOnly)
	case host != "" && c.Leaf.VerifyHostname(host) != nil && !covers(c, host):
		return fmt.Sprintf("it is not for %s", host)
	}
	return ""
}

// covers says that a certificate is for a wildcard itself.
func covers(c *route.Certificate, host string) bool {
	for _, name := range c.Leaf.DNSNames {
		if name == host {
			return true
		}
	}
	return false
}
