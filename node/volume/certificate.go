package volume

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/kinds/gr"
	"proa.dev/node/event"
)

// How long a request is waited for at a stretch, when one that has vanished is made again, and when a refresh is overdue.
const (
	certWait    = 5 * time.Second
	certLook    = 10 * time.Second
	certOverdue = 10 * time.Minute
	certJitter  = 5 * time.Minute
)

// certs are the certificates of Pods. Keys never leave the node; after a restart there are new ones.
type certs struct {
	client client.Client
	node   string
	events event.Recorder
	// mu guards held; each cert is guarded by the work on the volumes of its Pod.
	mu   sync.Mutex
	held map[certKey]*cert
}

// certKey names a source of a projected volume of a Pod.
type certKey struct {
	uid    types.UID
	volume string
	index  int
}

// cert is a certificate, or the way to one. The zero value has none and waits for none.
type cert struct {
	key, chain       []byte
	refresh, end     time.Time
	overdue, expired bool // people were told
	// request is the name of what is waited for, with the key that it is about; empty for none.
	request    string
	requestKey []byte
	// refused is set when there never will be a certificate.
	refused error
}

func (c *certs) drop(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.held {
		if k.uid == uid {
			delete(c.held, k)
		}
	}
}

// get returns a key and its chain of certificates, in PEM, and the time at which to ask again.
func (c *certs) get(ctx context.Context, p *corev1.Pod, k certKey, s *corev1.PodCertificateProjection) (key, chain []byte, again time.Time, err error) {
	c.mu.Lock()
	one := c.held[k]
	if one == nil {
		one = &cert{}
		c.held[k] = one
	}
	c.mu.Unlock()
	now := time.Now()
	if one.refused == nil && (one.key == nil || !now.Before(one.refresh)) {
		c.overdue(p, one, now)
		if err := c.renew(ctx, p, one, s); err != nil && one.key == nil {
			return nil, nil, time.Time{}, err
		}
	}
	if one.refused != nil {
		return nil, nil, time.Time{}, one.refused
	}
	again = one.refresh
	if soon := now.Add(certLook); again.Before(soon) {
		again = soon
	}
	return one.key, one.chain, again, nil
}

// overdue tells people, once, that a certificate is too old.
func (c *certs) overdue(p *corev1.Pod, one *cert, now time.Time) {
	if one.key == nil {
		return
	}
	if now.After(one.refresh.Add(certOverdue)) && !one.overdue {
		one.overdue = true
		c.events.Event(p, "", corev1.EventTypeWarning, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if now.After(one.end) && !one.expired {
		one.expired = true
		c.events.Event(p, "", corev1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	}
}

// renew asks for a certificate, if that was not done, and waits for it a little.
func (c *certs) renew(ctx context.Context, p *corev1.Pod, one *cert, s *corev1.PodCertificateProjection) error {
	if one.request == "" {
		if err := c.ask(ctx, p, one, s); err != nil {
			return err
		}
	}
	limit := time.Now().Add(certWait)
	if one.key != nil {
		limit = time.Time{} // there is one that is still good; nobody has to wait
	}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		done, err := c.look(ctx, p, one)
		if done || err != nil {
			return err
		}
		if time.Now().After(limit) {
			return errors.New("credential bundle is not issued yet")
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask makes a key and a request for a certificate of it.
func (c *certs) ask(ctx context.Context, p *corev1.Pod, one *cert, s *corev1.PodCertificateProjection) error {
	account, err := c.client.Get(ctx, gr.ServiceAccounts, p.Namespace, p.Spec.ServiceAccountName, "")
	if err != nil {
		return fmt.Errorf("while fetching service account: %w", err)
	}
	node, err := c.client.Get(ctx, gr.Nodes, "", c.node, "")
	if err != nil {
		return fmt.Errorf("while getting node object: %w", err)
	}
	key, proof, err := newKey(s.KeyType)
	if err != nil {
		return fmt.Errorf("while generating keypair: %w", err)
	}
	o, err := c.client.Create(ctx, gr.PodCertificateRequests, &certificatesv1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}},
		},
		Spec: certificatesv1.PodCertificateRequestSpec{
			SignerName: s.SignerName, PodName: p.Name, PodUID: p.UID,
			ServiceAccountName: p.Spec.ServiceAccountName, ServiceAccountUID: account.GetUID(),
			NodeName: types.NodeName(c.node), NodeUID: node.GetUID(), MaxExpirationSeconds: s.MaxExpirationSeconds,
			StubPKCS10Request: proof, UnverifiedUserAnnotations: s.UserAnnotations,
		},
	})
	if err != nil {
		return fmt.Errorf("while creating on API: %w", err)
	}
	one.request, one.requestKey = o.GetName(), key
	return nil
}

// look sees what has become of a request, and says whether it is over.
func (c *certs) look(ctx context.Context, p *corev1.Pod, one *cert) (bool, error) {
	name := p.Namespace + "/" + one.request
	o, err := c.client.Get(ctx, gr.PodCertificateRequests, p.Namespace, one.request, "")
	if apierrors.IsNotFound(err) {
		one.request, one.requestKey = "", nil
		return false, errors.New("PodCertificateRequest appears to have been deleted")
	}
	if err != nil {
		return false, fmt.Errorf("while getting PodCertificateRequest %q: %w", name, err)
	}
	r, ok := o.(*certificatesv1.PodCertificateRequest)
	if !ok {
		return false, fmt.Errorf("PodCertificateRequest %q is a %T", name, o)
	}
	for _, cond := range r.Status.Conditions {
		switch cond.Type {
		case certificatesv1.PodCertificateRequestConditionTypeIssued:
			later := mathrand.N(certJitter) //nolint:gosec // G404: it spreads load
			*one = cert{key: one.requestKey, chain: cleanChain([]byte(r.Status.CertificateChain))}
			if r.Status.BeginRefreshAt != nil {
				one.refresh = r.Status.BeginRefreshAt.Add(later)
			}
			if r.Status.NotAfter != nil {
				one.end = r.Status.NotAfter.Time
			}
			return true, nil
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			one.refused = fmt.Errorf("PodCertificateRequest was permanently denied: reason=%q message=%q", cond.Reason, cond.Message)
			c.events.Event(p, "", corev1.EventTypeWarning, cond.Type, "PodCertificateRequest %s was denied, reason=%q, message=%q", name, cond.Reason, cond.Message)
			return true, nil
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			one.refused = fmt.Errorf("PodCertificateRequest was permanently failed: reason=%q message=%q", cond.Reason, cond.Message)
			c.events.Event(p, "", corev1.EventTypeWarning, cond.Type, "PodCertificateRequest %s failed, reason=%q, message=%q", name, cond.Reason, cond.Message)
			return true, nil
		}
	}
	return false, nil
}

// newKey makes a key of a type, in PEM, and a request that proves to be in possession of it.
func newKey(kind string) (key, proof []byte, err error) {
	var private crypto.PrivateKey
	switch kind {
	case "RSA3072":
		private, err = rsa.GenerateKey(rand.Reader, 3072)
	case "RSA4096":
		private, err = rsa.GenerateKey(rand.Reader, 4096)
	case "ECDSAP256":
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ECDSAP384":
		private, err = ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	case "ECDSAP521":
		private, err = ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	case "ED25519":
		_, private, err = ed25519.GenerateKey(rand.Reader)
	default:
		return nil, nil, fmt.Errorf("unknown key type %q", kind)
	}
	if err != nil {
		return nil, nil, err
	}
	if proof, err = x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, private); err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), proof, nil
}

// cleanChain keeps the certificates of a chain, and nothing that somebody wrote around them.
func cleanChain(in []byte) []byte {
	var out bytes.Buffer
	for {
		var b *pem.Block
		if b, in = pem.Decode(in); b == nil {
			return out.Bytes()
		}
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Bytes}))
	}
}
