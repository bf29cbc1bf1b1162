package nodestatus

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"proa.dev/internal/wait"
)

// Issuer issues a certificate for a request; both are PEM. For an agent inside the server it is the certificate
// authority itself, for others it creates a CertificateSigningRequest; see Ask.
type Issuer func(ctx context.Context, request []byte, key crypto.Signer) ([]byte, error)

// Certificate is a certificate with its key that is kept valid: it is requested, stored, and renewed in time. A process
// that was killed continues with what is stored, and a request that was not answered is not made twice.
type Certificate struct {
	// File holds certificate and key, as PEM, readable by the owner only.
	File string
	// Wanted returns what the certificate must contain; nil as long as that is not known.
	Wanted func() *x509.CertificateRequest
	Issue  Issuer
	Log    *slog.Logger
	// FormerCAs returns certificate authorities that signed such certificates once and no longer do; it may be nil. A
	// certificate of theirs that is found when the process starts is renewed, once: if they still sign, the new one is
	// as good.
	FormerCAs func() *x509.CertPool
	// Changed is called when there is a new certificate; it may be nil.
	Changed func()

	current atomic.Pointer[tls.Certificate]
	// outdated reports that the certificate was found at the start, and is signed by a former authority.
	outdated atomic.Bool
	failures atomic.Int64
	wake     wait.Signal
}

// Load reads the stored certificate, if there is one, and must be called first.
func (c *Certificate) Load() error {
	c.wake = wait.NewSignal()
	pair, err := read(c.File)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		// A certificate that cannot be used is replaced; it is no reason not to start.
		c.Log.Error("the stored certificate cannot be used", "file", c.File, "err", err)
		return nil
	}
	// One that has expired is not used, see Current, and is kept for Expired.
	c.current.Store(pair)
	c.outdated.Store(c.isFormer(pair.Leaf))
	return nil
}

// Expired returns when the certificate has expired; zero if it has not, or if there is none.
func (c *Certificate) Expired() time.Time {
	pair := c.current.Load()
	if pair == nil || time.Now().Before(pair.Leaf.NotAfter) {
		return time.Time{}
	}
	return pair.Leaf.NotAfter
}

// Adopt stores a certificate with its key, both PEM, that was issued elsewhere, unless the present one is valid for
// longer.
func (c *Certificate) Adopt(cert, key []byte) error {
	both := slices.Concat(cert, []byte("\n"), key)
	pair, err := parse(both)
	if err != nil {
		return err
	}
	now := c.Current()
	if now != nil && !pair.Leaf.NotAfter.After(now.Leaf.NotAfter) {
		return nil
	}
	if !time.Now().Before(pair.Leaf.NotAfter) {
		return fmt.Errorf("it has expired, at %s", pair.Leaf.NotAfter.UTC().Format(time.RFC3339))
	}
	if err := WriteFileAtomic(c.File, both); err != nil {
		return err
	}
	c.current.Store(pair)
	return nil
}

// isFormer reports whether a certificate is signed by one of the Former authorities.
func (c *Certificate) isFormer(leaf *x509.Certificate) bool {
	if c.FormerCAs == nil {
		return false
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: c.FormerCAs(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err == nil
}

// Current returns the certificate, nil if there is none that is valid.
func (c *Certificate) Current() *tls.Certificate {
	pair := c.current.Load()
	if pair == nil || !time.Now().Before(pair.Leaf.NotAfter) {
		return nil
	}
	return pair
}

// Failures returns how many renewals have failed.
func (c *Certificate) Failures() int64 { return c.failures.Load() }

// Serve implements tls.Config.GetCertificate.
func (c *Certificate) Serve(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if pair := c.Current(); pair != nil {
		return pair, nil
	}
	return nil, errors.New("no serving certificate available for the kubelet")
}

// Present implements tls.Config.GetClientCertificate.
func (c *Certificate) Present(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if pair := c.Current(); pair != nil {
		return pair, nil
	}
	return nil, errors.New("the node has no valid client certificate; give it a token to join with")
}

// Recheck makes Run check again whether the certificate has what is wanted.
func (c *Certificate) Recheck() { c.wake.Send() }

// Run keeps the certificate valid until ctx ends.
func (c *Certificate) Run(ctx context.Context) error {
	retry := wait.Backoff{First: 2 * time.Second, Max: time.Minute, Jitter: 0.05}
	for ctx.Err() == nil {
		t := time.NewTimer(time.Until(c.due()))
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-c.wake:
			t.Stop()
			continue
		case <-t.C:
		}
		if err := c.Renew(ctx); err != nil && ctx.Err() == nil {
			c.failures.Add(1)
			c.Log.Error("the certificate cannot be renewed", "file", c.File, "err", err)
			if retry.Sleep(ctx) != nil {
				return nil
			}
			continue
		}
		retry.Reset()
	}
	return nil
}

// never is longer than any process lives.
const never = 100 * 365 * 24 * time.Hour

// due returns when the certificate must be renewed: at once if it lacks what is wanted, otherwise after 70 to 90
// percent of its lifetime. The spread keeps nodes that joined together from renewing together.
func (c *Certificate) due() time.Time {
	want, pair := c.Wanted(), c.Current()
	switch {
	case want == nil:
		return time.Now().Add(never)
	case pair == nil || c.outdated.Load() || !matchesRequest(pair.Leaf, want):
		return time.Now()
	}
	return renewalTime(pair.Leaf, mathrand.Float64()) //nolint:gosec // G404: it spreads load, and is no secret
}

func renewalTime(leaf *x509.Certificate, chance float64) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*chance)))
}

// matchesRequest reports whether a certificate contains what is wanted.
func matchesRequest(leaf *x509.Certificate, want *x509.CertificateRequest) bool {
	if leaf.Subject.CommonName != want.Subject.CommonName || !subset(want.Subject.Organization, leaf.Subject.Organization) ||
		!subset(want.DNSNames, leaf.DNSNames) {
		return false
	}
	for _, ip := range want.IPAddresses {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			return false
		}
	}
	return true
}

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}

// Renew requests a new certificate now, with a new key.
func (c *Certificate) Renew(ctx context.Context) error {
	want := c.Wanted()
	if want == nil {
		return errors.New("it is not known yet what the certificate is for")
	}
	// The key is stored before the request is made, so that the answer can be used after a restart.
	key, err := c.pending()
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, want, key)
	if err != nil {
		return fmt.Errorf("make a certificate request: %w", err)
	}
	cert, err := c.Issue(ctx, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), key)
	if _, never := errors.AsType[*refusedError](err); never {
		c.drop() // another request needs another key
	}
	if err != nil {
		return err
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return err
	}
	both := slices.Concat(cert, keyPEM)
	pair, err := parse(both)
	if err != nil {
		return fmt.Errorf("the certificate that was issued cannot be used: %w", err)
	}
	if err := WriteFileAtomic(c.File, both); err != nil {
		return err
	}
	c.current.Store(pair)
	c.outdated.Store(false)
	c.drop()
	if c.Changed != nil {
		c.Changed()
	}
	return nil
}

// drop removes the key of a request that is done.
func (c *Certificate) drop() {
	if err := os.Remove(c.File + ".key"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.Log.Warn("a key that is used up cannot be removed", "err", err)
	}
}

// pending returns the key of the pending request, or a new one.
func (c *Certificate) pending() (crypto.Signer, error) {
	file := c.File + ".key"
	if text, err := os.ReadFile(file); err == nil {
		if block, _ := pem.Decode(text); block != nil {
			if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
				return key, nil
			}
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	text, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return key, WriteFileAtomic(file, text)
}

func encodeKey(key crypto.Signer) ([]byte, error) {
	k, ok := key.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("a key of type %T cannot be stored", key)
	}
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

func read(file string) (*tls.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return parse(text)
}

func parse(text []byte) (*tls.Certificate, error) {
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &pair, nil
}

// WriteFileAtomic writes a file atomically, readable by the owner only.
func WriteFileAtomic(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(file), ".new-*") // 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(text)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
