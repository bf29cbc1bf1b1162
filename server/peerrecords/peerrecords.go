// Package peerrecords lets servers that share a store ask each other for records of hops, so that a trace shows the work of all of them.
// Each server has a Lease in kube-system that says where it is reached. A server answers from its own records only, and answers only
// servers: a connection must have the certificate that nobody gets who has not the keys of the cluster.
package peerrecords

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"proa.dev/client"
	"proa.dev/hop"
	"proa.dev/internal/wait"
	"proa.dev/kinds/lib/gr"
	"proa.dev/why/answer"
)

// Path is where a server asks another one for records.
const Path = "/proa/records"

const (
	// identityLabel marks the Leases of API servers, as upstream does, and addressKey is the annotation with the address.
	identityLabel, identityValue = "apiserver.kubernetes.io/identity", "kube-apiserver"
	addressKey                   = "proa.dev/address"
	// renewal is how often a server renews its Lease, and lifetime how long the Lease is valid.
	renewal, lifetime = 15 * time.Second, time.Minute
	// forgetAfter is how long the Lease of a server that has stopped is kept.
	forgetAfter = time.Hour
	// writeTimeout bounds one renewal.
	writeTimeout = 5 * time.Second
)

// Config is what a server needs to ask others and to answer them.
type Config struct {
	// Address is where other servers reach this one.
	Address netip.AddrPort
	// Certificate returns the client certificate of servers, CAs the authorities that sign their serving certificates.
	Certificate func() tls.Certificate
	CAs         func() *x509.CertPool
	// Verify returns the user of a chain of client certificates. User is that of servers, who is in the group system:masters.
	Verify func(chain []*x509.Certificate) (user.Info, error)
	User   string
	// Client returns a client of the server itself, and Records its recorder.
	Client  func() client.Client
	Records func() *hop.Recorder
	// Attempt returns what the scheduler of this server found when it last tried to place a Pod; nil if it has not tried, and an error if
	// it does not run.
	Attempt func(pod types.UID) (*answer.Attempt, error)
	Log     *slog.Logger
}

// Peers are the other servers of the cluster. Nil Peers stand for a server that shares its store with nobody.
type Peers struct {
	Config
	name     string // of the Lease of this server
	http     *http.Client
	contacts contacts
}

// New returns the peers of a server.
func New(c Config) *Peers {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	sum := sha256.Sum256([]byte(host + " " + c.Address.String()))
	p := &Peers{Config: c, name: "apiserver-" + hex.EncodeToString(sum[:8])}
	p.http = &http.Client{
		Transport:     &http.Transport{DialTLSContext: p.dial, MaxIdleConnsPerHost: 2, IdleConnTimeout: 30 * time.Second},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return p
}

// Announce keeps the Lease of the server until ctx ends. The Lease is not deleted then: it tells the other servers that records are
// missing from traces of that time.
func (p *Peers) Announce(ctx context.Context) {
	if p == nil {
		return
	}
	failing := false
	for {
		err := p.renew(ctx)
		if err != nil && !failing && ctx.Err() == nil {
			p.Log.WarnContext(ctx, "other servers cannot find this one, and their traces miss its records", "lease", p.name, "err", err)
		}
		failing = err != nil
		if wait.Sleep(ctx, renewal) != nil {
			return
		}
	}
}

// renew writes the Lease of the server, and deletes those of servers that stopped long ago.
func (p *Peers) renew(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, writeTimeout)
	defer stop()
	c := p.Client()
	v, err := c.View(ctx, gr.Leases)
	if err != nil {
		return err
	}
	now := time.Now()
	lease := &coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: p.name},
	}
	have, found := v.Get(lease.Namespace, lease.Name)
	if found {
		lease = have.(*coordinationv1.Lease).DeepCopy()
	}
	seconds, renewed := int32(lifetime/time.Second), metav1.NewMicroTime(now)
	metav1.SetMetaDataLabel(&lease.ObjectMeta, identityLabel, identityValue)
	metav1.SetMetaDataAnnotation(&lease.ObjectMeta, addressKey, p.Address.String())
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &p.name, LeaseDurationSeconds: &seconds, RenewTime: &renewed}
	if found {
		_, err = c.Update(ctx, gr.Leases, lease, "")
	} else {
		_, err = c.Create(ctx, gr.Leases, lease)
	}
	if err != nil {
		return err
	}
	for _, other := range p.others(v) {
		if now.Sub(other.renewed) > forgetAfter {
			_ = c.Delete(ctx, gr.Leases, metav1.NamespaceSystem, other.name, metav1.DeleteOptions{}) // the next renewal tries again
		}
	}
	return nil
}

// peer is another server, as its Lease describes it.
type peer struct {
	identity
	renewed time.Time
}

// identity tells servers apart.
type identity struct{ name, address string }

// String names the server for users. Whoever may write Leases in kube-system chooses the text of an address that is none.
func (o peer) String() string {
	if _, err := netip.ParseAddrPort(o.address); err != nil {
		return o.name
	}
	return o.name + " at " + o.address
}

// others returns the other servers, in the order of their names.
func (p *Peers) others(leases client.View) (out []peer) {
	for o := range leases.List(metav1.NamespaceSystem) {
		l := o.(*coordinationv1.Lease)
		address := l.Annotations[addressKey]
		if l.Name == p.name || l.Labels[identityLabel] != identityValue || address == "" || l.Spec.RenewTime == nil {
			continue
		}
		out = append(out, peer{identity{l.Name, address}, l.Spec.RenewTime.Time})
	}
	return out
}
