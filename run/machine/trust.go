package machine

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
	"proa.dev/kinds/gr"
	"proa.dev/node/nodestatus"
	"proa.dev/run"
)

// bundleSigner names the trust bundles by which the API servers are known.
const bundleSigner = "kubernetes.io/kube-apiserver-serving"

// trust is whom an agent believes to be its cluster. It begins with what is kept in a file, and follows what the cluster tells: an
// authority that will sign some day is known before it does.
type trust struct {
	file string

	mu      sync.Mutex // guards what follows
	text    []byte
	certs   []*x509.Certificate
	pool    *x509.CertPool
	changed chan struct{}
}

// readTrust reads what is kept. Without a file the error is os.ErrNotExist.
func readTrust(file string) (*trust, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	certs, err := parseBundle(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; remove it to ask the server anew", file, err)
	}
	t := &trust{file: file}
	t.set(text, certs)
	return t, nil
}

// newTrust begins with certificates, and keeps them.
func newTrust(file string, certs ...*x509.Certificate) (*trust, error) {
	var text []byte
	for _, c := range certs {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	if err := nodestatus.Put(file, text); err != nil {
		return nil, err
	}
	t := &trust{file: file}
	t.set(text, certs)
	return t, nil
}

func (t *trust) set(text []byte, certs []*x509.Certificate) {
	t.text, t.certs, t.pool = text, certs, x509.NewCertPool()
	for _, c := range certs {
		t.pool.AddCert(c)
	}
	if t.changed != nil {
		close(t.changed)
	}
	t.changed = make(chan struct{})
}

// Pool trusts the certificates of now.
func (t *trust) Pool() *x509.CertPool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pool
}

// names says whether one of the authorities is the one that somebody looks for.
func (t *trust) names(match func(*x509.Certificate) bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.certs, match)
}

// take believes another bundle from now on, once it is kept. It says whether it is another one.
func (t *trust) take(text []byte) (bool, error) {
	certs, err := parseBundle(text)
	if err != nil {
		return false, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if bytes.Equal(text, t.text) {
		return false, nil
	}
	if err := nodestatus.Put(t.file, text); err != nil {
		return false, err
	}
	t.set(text, certs)
	return true, nil
}

// follow takes the bundles that the cluster publishes, until ctx ends.
func (t *trust) follow(ctx context.Context, c client.Client, log *slog.Logger, changed func()) error {
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
			log.ErrorContext(ctx, "the bundle that the cluster publishes is not taken over", "err", err)
		case other:
			log.InfoContext(ctx, "the cluster has another bundle of authorities, which is believed from now on", "file", t.file)
			changed()
		}
	}
	return nil
}

// published are the certificates by which the API servers are known, as PEM. While one bundle follows another, both are good.
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

// each calls do with a context that ends when others are to be believed, and then again, until ctx ends.
func (t *trust) each(ctx context.Context, do func(context.Context) error) error {
	for ctx.Err() == nil {
		t.mu.Lock()
		changed := t.changed
		t.mu.Unlock()
		err := run.Until(ctx, changed, do)
		select {
		case <-changed: // that is why it has ended
		default:
			return err
		}
	}
	return context.Cause(ctx)
}

// parseBundle reads certificates.
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
