// Package podcredential provides the keys and certificates of podCertificate projections: it generates a key, creates a
// PodCertificateRequest, waits until a signer has issued the certificate, and renews it in time. Keys are kept in memory and
// never leave the node; after a restart of the agent there are new ones.
package podcredential

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
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"proa.dev/client"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/node/event"
)

const (
	// issueTimeout is how long a call of Get waits for a certificate to be issued.
	issueTimeout = 5 * time.Second
	// minRefresh is the least time between two refreshes of a volume.
	minRefresh = 10 * time.Second
	// overdueAfter is how late a refresh may be before an Event says so.
	overdueAfter = 10 * time.Minute
	// refreshJitter spreads the refreshes of many Pods.
	refreshJitter = 5 * time.Minute
)

// Manager holds the certificates of the Pods of a node.
type Manager struct {
	client client.Client
	node   string
	events event.Recorder
	// mu guards held; a certificate itself is used by one call of Get at a time, that of the work on its Pod's volumes.
	mu   sync.Mutex
	held map[Key]*certificate
}

// New makes a manager that requests certificates for the Pods of a node.
func New(c client.Client, node string, events event.Recorder) *Manager {
	return &Manager{client: c, node: node, events: events, held: map[Key]*certificate{}}
}

// Key names one source of a projected volume of a Pod.
type Key struct {
	Pod    types.UID
	Volume string
	Index  int // of the source in the volume
}

// certificate is a certificate, the request for one, or both during a renewal.
type certificate struct {
	key, chain       []byte
	refresh, end     time.Time
	overdue, expired bool // an Event has been recorded
	// request is the name of the pending PodCertificateRequest, requestKey its private key; empty for none.
	request    string
	requestKey []byte
	// refused is set when the request was denied or has failed: there is no further attempt.
	refused error
}

// Drop forgets the certificates of a Pod.
func (c *Manager) Drop(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.held {
		if k.Pod == uid {
			delete(c.held, k)
		}
	}
}

// Get returns the key and the certificate chain of a projection, in PEM, and the time at which to call it again.
func (c *Manager) Get(ctx context.Context, p *corev1.Pod, k Key, s *corev1.PodCertificateProjection) (key, chain []byte, again time.Time,
	err error) {
	c.mu.Lock()
	held := c.held[k]
	if held == nil {
		held = &certificate{}
		c.held[k] = held
	}
	c.mu.Unlock()
	now := time.Now()
	if held.refused == nil && (held.key == nil || !now.Before(held.refresh)) {
		c.warnOverdue(p, held, now)
		if err := c.renew(ctx, p, held, s); err != nil && held.key == nil {
			return nil, nil, time.Time{}, err
		}
	}
	if held.refused != nil {
		return nil, nil, time.Time{}, held.refused
	}
	again = held.refresh
	if soon := now.Add(minRefresh); again.Before(soon) {
		again = soon
	}
	return held.key, held.chain, again, nil
}

// warnOverdue records an Event, once, about a certificate that is overdue for refresh or has expired.
func (c *Manager) warnOverdue(p *corev1.Pod, held *certificate, now time.Time) {
	if held.key == nil {
		return
	}
	if now.After(held.refresh.Add(overdueAfter)) && !held.overdue {
		held.overdue = true
		c.events.Event(event.Pod(p), corev1.EventTypeWarning, "CertificateOverdueForRefresh", "PodCertificate refresh overdue")
	}
	if now.After(held.end) && !held.expired {
		held.expired = true
		c.events.Event(event.Pod(p), corev1.EventTypeWarning, "CertificateExpired", "PodCertificate expired")
	}
}

// renew requests a certificate, unless a request is pending, and waits for it until issueTimeout.
func (c *Manager) renew(ctx context.Context, p *corev1.Pod, held *certificate, s *corev1.PodCertificateProjection) error {
	if held.request == "" {
		if err := c.createRequest(ctx, p, held, s); err != nil {
			return err
		}
	}
	limit := time.Now().Add(issueTimeout)
	if held.key != nil {
		limit = time.Time{} // the present certificate is still valid, so there is no need to wait
	}
	poll := wait.Backoff{First: 20 * time.Millisecond, Max: time.Second}
	for {
		done, err := c.checkRequest(ctx, p, held)
		if done || err != nil {
			return err
		}
		if time.Now().After(limit) {
			return errors.New("credential bundle is not issued yet")
		}
		if err := poll.Sleep(ctx); err != nil {
			return err
		}
	}
}

// createRequest generates a key and creates a PodCertificateRequest for it.
func (c *Manager) createRequest(ctx context.Context, p *corev1.Pod, held *certificate, s *corev1.PodCertificateProjection) error {
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
	held.request, held.requestKey = o.GetName(), key
	return nil
}

// checkRequest reads the status of the pending request, and reports whether it has been decided.
func (c *Manager) checkRequest(ctx context.Context, p *corev1.Pod, held *certificate) (bool, error) {
	name := p.Namespace + "/" + held.request
	o, err := c.client.Get(ctx, gr.PodCertificateRequests, p.Namespace, held.request, "")
	if apierrors.IsNotFound(err) {
		held.request, held.requestKey = "", nil
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
			later := wait.Jitter(refreshJitter)
			*held = certificate{key: held.requestKey, chain: cleanChain([]byte(r.Status.CertificateChain))}
			if r.Status.BeginRefreshAt != nil {
				held.refresh = r.Status.BeginRefreshAt.Add(later)
			}
			if r.Status.NotAfter != nil {
				held.end = r.Status.NotAfter.Time
			}
			return true, nil
		case certificatesv1.PodCertificateRequestConditionTypeDenied:
			held.refused = fmt.Errorf("PodCertificateRequest was permanently denied: reason=%q message=%q", cond.Reason, cond.Message)
			c.events.Event(event.Pod(p), corev1.EventTypeWarning, cond.Type, "PodCertificateRequest %s was denied, reason=%q, message=%q",
				name, cond.Reason, cond.Message)
			return true, nil
		case certificatesv1.PodCertificateRequestConditionTypeFailed:
			held.refused = fmt.Errorf("PodCertificateRequest was permanently failed: reason=%q message=%q", cond.Reason, cond.Message)
			c.events.Event(event.Pod(p), corev1.EventTypeWarning, cond.Type, "PodCertificateRequest %s failed, reason=%q, message=%q", name,
				cond.Reason, cond.Message)
			return true, nil
		}
	}
	return false, nil
}

// newKey generates a key of a type, in PEM, and a certificate request that proves its possession.
func newKey(keyType string) (key, proof []byte, err error) {
	var private crypto.PrivateKey
	switch keyType {
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
		return nil, nil, fmt.Errorf("unknown key type %q", keyType)
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

// cleanChain keeps the certificates of a chain, without text around them.
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
