package agentjoin

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"

	certificatesv1 "k8s.io/api/certificates/v1"

	"proa.dev/client"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/nodestatus"
	"proa.dev/run/parthealth"
)

// bundleSigner is the signer name of the ClusterTrustBundles with the authorities of API servers.
const bundleSigner = "kubernetes.io/kube-apiserver-serving"

// Trust has the certificate authorities that an agent trusts. It begins with those in a file, and follows the bundle
// that the cluster publishes: an authority is trusted before it begins to sign.
type Trust struct {
	file string

	mu      sync.Mutex // guards what follows
	text    []byte
	certs   []*x509.Certificate
	pool    *x509.CertPool
	changed chan struct{}
}

// ReadTrust reads the stored authorities. Without a file the error is os.ErrNotExist.
func ReadTrust(file string) (*Trust, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	certs, err := parseBundle(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to ask the server anew", file, err)
	}
	t := &Trust{file: file}
	t.set(text, certs)
	return t, nil
}

// newTrust stores the certificates of authorities.
func newTrust(file string, certs ...*x509.Certificate) (*Trust, error) {
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	if err := nodestatus.WriteFileAtomic(file, text); err != nil {
		return nil, err
	}
	t := &Trust{file: file}
	t.set(text, certs)
	return t, nil
}

func (t *Trust) set(text []byte, certs []*x509.Certificate) {
	t.text, t.certs, t.pool = text, certs, x509.NewCertPool()
	for _, c := range certs {
		t.pool.AddCert(c)
	}
	if t.changed != nil {
		close(t.changed)
	}
	t.changed = make(chan struct{})
}

// Pool returns the authorities that are trusted now.
func (t *Trust) Pool() *x509.CertPool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool
}

// Contains tells whether one of the authorities satisfies match.
func (t *Trust) Contains(match func(*x509.Certificate) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.certs, match)
}

// take stores and trusts another bundle, and tells whether it differs from the present one.
func (t *Trust) take(text []byte) (bool, error) {
	certs, err := parseBundle(text)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytes.Equal(text, t.text) {
		return false, nil
	}
	if err := nodestatus.WriteFileAtomic(t.file, text); err != nil {
		return false, err
	}
	t.set(text, certs)
	return true, nil
}

// Follow trusts the bundles that the cluster publishes, until ctx ends. It calls changed after each change.
func (t *Trust) Follow(ctx context.Context, c client.Client, log *slog.Logger, changed func()) error {
	view, err := c.View(ctx, gr.ClusterTrustBundles)
	if err != nil {
		return err
	}
	for range view.Events(ctx) {
		text := published(view)
		if len(text) == 0 {
			continue
		}
		other, err := t.take(text)
		switch {
		case err != nil:
			log.ErrorContext(ctx, "the bundle of certificate authorities that the cluster publishes cannot be used", "err", err)
		case other:
			log.InfoContext(ctx, "the cluster has published another bundle of certificate authorities, which is trusted from now on", "file", t.file)
			changed()
		}
	}
	return nil
}

// published returns the certificates in the trust bundles of API servers, as PEM. While one bundle replaces another,
// both count.
func published(view client.View) (out []byte) {
	for o := range view.List("") {
		b, ok := o.(*certificatesv1.ClusterTrustBundle)
		if !ok || b.Spec.SignerName != bundleSigner {
			continue
		}
		if len(out) > 0 && out[len(out)-1] != '\n' {
			out = append(out, '\n')
		}
		out = append(out, b.Spec.TrustBundle...)
	}
	return out
}

// RunUntilChanged calls do with a context that ends when the trusted authorities change, and then again, until ctx
// ends.
func (t *Trust) RunUntilChanged(ctx context.Context, do func(context.Context) error) error {
	for ctx.Err() == nil {
		t.mu.Lock()
		changed := t.changed
		t.mu.Unlock()
		err := parthealth.Until(ctx, changed, do)
		select {
		case <-changed: // that is why it has ended
		default:
			return err
		}
	}
	return context.Cause(ctx)
}

// parseBundle parses certificates in PEM.
func parseBundle(text []byte) (out []*x509.Certificate, err error) {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, cert)
	}
	if len(out) == 0 {
		return nil, errors.New("there is no certificate in it")
	}
	return out, nil
}
