package proxysync

import (
	"crypto/tls"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/network/httpproxy"
)

// Certificates caches the certificates of Secrets, so that each version of a Secret is parsed once. The zero value is empty.
type Certificates struct{ bySecret map[types.UID]parsedSecret }

type parsedSecret struct {
	resourceVersion string
	cert            *httpproxy.Certificate
	err             error
	used            bool
}

// Load returns the certificate of a Secret, or why it has none that can be used.
func (c *Certificates) Load(secret *corev1.Secret) (*httpproxy.Certificate, error) {
	if c.bySecret == nil {
		c.bySecret = map[types.UID]parsedSecret{}
	}
	p, ok := c.bySecret[secret.UID]
	if !ok || p.resourceVersion != secret.ResourceVersion {
		p = parsedSecret{resourceVersion: secret.ResourceVersion}
		p.cert, p.err = parseCertificate(secret)
	}
	p.used = true
	c.bySecret[secret.UID] = p
	return p.cert, p.err
}

// DropUnused forgets the Secrets that were not loaded since the last call.
func (c *Certificates) DropUnused() {
	for uid, p := range c.bySecret {
		if !p.used {
			delete(c.bySecret, uid)
			continue
		}
		p.used = false
		c.bySecret[uid] = p
	}
}

func parseCertificate(secret *corev1.Secret) (*httpproxy.Certificate, error) {
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
