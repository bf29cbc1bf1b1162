package authn

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
)

// maxCerts is the number of certificates in the cache of verified ones.
const maxCerts = 4096

// ServerTLS returns the TLS configuration that this hop expects of the listener: clients are asked for a certificate,
// and it is verified here instead of in the handshake, where an invalid one could only end the connection without an
// explanation.
func ServerTLS(certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)) *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: certificate,
		ClientAuth:     tls.RequestClientCert,
		NextProtos:     []string{"h2", "http/1.1"},
	}
}

// trust is a set of certificate authorities with the client certificates that were verified against it. These are found
// by their bytes: each connection has parsed its own copy, and hashing some 500 bytes costs next to nothing.
type trust struct {
	clientCAs, proxyCAs *x509.CertPool
	proxyNames          []string

	mu       sync.RWMutex // mu guards verified
	verified map[string]*certEntry
}

// certEntry caches what is known of a certificate until it, or one above it in its chain, expires.
type certEntry struct {
	until time.Time
	// who is the identity of a client; nil when clientErr says why there is none.
	who       user.Info
	clientErr error
	// proxyErr is nil for a front proxy.
	proxyErr error
}

// certificate returns the identity of the peer of the connection, or of the user that it names when it is a front
// proxy.
func (a *Authenticator) certificate(r *http.Request) (user.Info, error) {
	t := a.trust.Load()
	now := a.now()
	e := t.check(r.TLS.PeerCertificates, now)
	if a.cfg.Certificate != nil {
		a.cfg.Certificate(r.TLS.PeerCertificates[0].NotAfter.Sub(now))
	}
	if name := r.Header.Get(headerUser); name != "" && t.proxyCAs != nil {
		if e.proxyErr == nil {
			return frontProxyUser(name, r.Header), nil
		}
	}
	if e.who != nil {
		return e.who, nil
	}
	return nil, e.clientErr
}

// ClientCertificate returns the identity in a client certificate. The chain is verified against the current certificate
// authorities and for client authentication. It is for callers that must know whose a connection itself is, which
// neither a bearer token, nor a front proxy's header, nor impersonation proves, and the TLS handshake accepts any
// certificate.
func (a *Authenticator) ClientCertificate(chain []*x509.Certificate) (user.Info, error) {
	if len(chain) == 0 {
		return nil, ErrNoCredentials
	}
	e := a.trust.Load().check(chain, a.now())
	if e.who == nil {
		return nil, e.clientErr
	}
	return e.who, nil
}

// check verifies a chain, or returns the cached result. Failures are not cached: a client may retry with the
// intermediate certificate that it left out.
func (t *trust) check(chain []*x509.Certificate, now time.Time) *certEntry {
	t.mu.RLock()
	e := t.verified[string(chain[0].Raw)]
	t.mu.RUnlock()
	if e != nil && now.Before(e.until) {
		return e
	}
	e = t.verify(chain, now)
	if e.clientErr != nil && e.proxyErr != nil {
		return e
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.verified == nil || len(t.verified) >= maxCerts {
		// This is rare enough that starting over is cheaper than keeping an order of use.
		t.verified = map[string]*certEntry{}
	}
	t.verified[string(chain[0].Raw)] = e
	return e
}

func (t *trust) verify(chain []*x509.Certificate, now time.Time) *certEntry {
	e := &certEntry{}
	opts := x509.VerifyOptions{
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		Intermediates: x509.NewCertPool(),
	}
	for _, c := range chain[1:] {
		opts.Intermediates.AddCert(c)
	}
	until, err := verifyAgainst(t.clientCAs, chain[0], opts)
	if err != nil {
		e.clientErr = fmt.Errorf("verifying certificate %s failed: %w", describe(chain[0]), err)
	} else {
		e.until = until
		e.who, e.clientErr = certUser(chain[0])
	}
	until, e.proxyErr = verifyAgainst(t.proxyCAs, chain[0], opts)
	if e.proxyErr == nil && !slices.Contains(t.proxyNames, chain[0].Subject.CommonName) {
		e.proxyErr = fmt.Errorf("x509: subject with cn=%s is not in the allowed list", chain[0].Subject.CommonName)
	}
	if e.proxyErr == nil && (e.until.IsZero() || until.Before(e.until)) {
		e.until = until
	}
	return e
}

// verifyAgainst returns how long the longest-lived chain to one of the roots is valid.
func verifyAgainst(roots *x509.CertPool, leaf *x509.Certificate, opts x509.VerifyOptions) (time.Time, error) {
	if roots == nil {
		// A nil pool would mean the roots of the operating system to crypto/x509.
		return time.Time{}, errors.New("x509: no authority for client certificates is configured")
	}
	opts.Roots = roots
	chains, err := leaf.Verify(opts)
	if err != nil {
		return time.Time{}, err
	}
	var best time.Time
	for _, chain := range chains {
		end := chain[0].NotAfter
		for _, c := range chain[1:] {
			if c.NotAfter.Before(end) {
				end = c.NotAfter
			}
		}
		if end.After(best) {
			best = end
		}
	}
	return best, nil
}

// certUser reads the identity out of the subject: CN is the user, each O a group.
func certUser(c *x509.Certificate) (user.Info, error) {
	if c.Subject.CommonName == "" {
		return nil, fmt.Errorf("certificate %s names no user: its common name is empty", describe(c))
	}
	uid, err := certUID(c)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(c.Raw)
	return withAuthenticatedGroup(&user.DefaultInfo{
		Name:   c.Subject.CommonName,
		UID:    uid,
		Groups: c.Subject.Organization,
		Extra:  map[string][]string{user.CredentialIDKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	}), nil
}

// certUID reads the user's UID, which has an object identifier of its own in the subject.
func certUID(c *x509.Certificate) (string, error) {
	oid := asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}
	var uids []string
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(oid) {
			continue
		}
		uid, ok := name.Value.(string)
		if !ok {
			return "", errors.New("unable to parse UID into a string")
		}
		uids = append(uids, uid)
	}
	switch {
	case len(uids) == 0:
		return "", nil
	case len(uids) > 1:
		return "", fmt.Errorf("expected 1 UID, but found multiple: %v", uids)
	case uids[0] == "":
		return "", errors.New("UID cannot be an empty string")
	}
	return uids[0], nil
}

// describe identifies a certificate in a log without printing it.
func describe(c *x509.Certificate) string {
	return fmt.Sprintf("SN=%d, SKID=%s, AKID=%s", c.SerialNumber, colonHex(c.SubjectKeyId), colonHex(c.AuthorityKeyId))
}

func colonHex(b []byte) string {
	parts := make([]string, len(b))
	for i, x := range b {
		parts[i] = fmt.Sprintf("%02X", x)
	}
	return strings.Join(parts, ":")
}
