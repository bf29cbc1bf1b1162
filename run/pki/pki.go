// Package pki is the cluster's own public key infrastructure: it owns one folder with three certificate authorities,
// the certificates they sign, and the key that signs service-account tokens.
//
// Vocabulary: an Authority signs; a Pair is a certificate with its key; a leaf is a Pair kept in the folder and renewed
// there. File names follow those of kubeadm, so that the usual tools work.
//
// Ensure makes what is missing and renews what has to be renewed. It never replaces the token key. It rotates an
// authority in time, so that clients trust the new one before it signs, or replaces it when it has expired; see
// rotation.go. A leaf keeps its key when it is renewed, so a crash between two renames never leaves a certificate
// beside the key of another one.
package pki

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/netip"
	"path/filepath"
	"sync"
	"time"
)

// Lifetimes. Leaves are renewed when less than RenewBefore of their life is left.
const (
	caLife      = 10 * 365 * 24 * time.Hour
	leafLife    = 365 * 24 * time.Hour
	RenewBefore = 30 * 24 * time.Hour
	// backdate tolerates clocks of other machines that are a little behind.
	backdate = 5 * time.Minute
)

// The names every proa cluster uses for its own identities.
const (
	AdminName            = "proa-admin"
	AdminGroup           = "system:masters"
	FrontProxyClientName = "front-proxy-client"
	KubeletClientName    = "kube-apiserver-kubelet-client"
)

// Options say for which names and addresses the API server's certificate must be valid. The zero value works for a
// cluster that is reached over loopback only.
type Options struct {
	// ListenIPs are the addresses clients dial. Unspecified ones (0.0.0.0, ::) are ignored.
	ListenIPs []netip.Addr
	// ServiceIPs are the first address of each service range, at which Pods reach the API server.
	ServiceIPs []netip.Addr
	// Hosts are further names and addresses, such as those of load balancers.
	Hosts []string
	// ClusterDomain is the DNS domain of services; empty means cluster.local.
	ClusterDomain string
	// Hostname replaces the name of this machine; empty asks the kernel.
	Hostname string
	// Shared says that other servers of the cluster have copies of the folder. None of them then makes a new authority
	// by itself, because each would make another one.
	Shared bool
	// Now replaces the clock; nil means time.Now.
	Now func() time.Time
}

// PKI is the loaded folder. Its methods are safe for concurrent use; what they return is the state
// after the last Ensure or Rotate and must not be changed.
type PKI struct {
	dir  string
	opts Options

	// rotate serialises Rotate; mu guards now, the loaded material.
	rotate sync.Mutex
	mu     sync.RWMutex
	now    *material
}

// material is one consistent view of the folder.
type material struct {
	ca, frontProxyCA, kubeletCA *Authority
	leaves                      map[string]*Pair
	serving                     *tls.Certificate
	saKey                       crypto.Signer
	saPublic                    []crypto.PublicKey
	renewed                     []string
	notices                     []Notice
}

// Notice is a message for the administrator about an authority.
type Notice struct {
	Text string
	// Urgent messages ask for something to be done.
	Urgent bool
}

// Ensure loads the PKI in dir, and makes or renews what needs it. If nothing does, no file is written.
func Ensure(dir string, opts Options) (*PKI, error) {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	p := &PKI{dir: dir, opts: opts}
	if _, err := p.Rotate(); err != nil {
		return nil, err
	}
	return p, nil
}

// Rotate reads the folder again, renews what has to be renewed and uses what another process has put there. It returns
// the names of the renewed leaves. Call it once a day. After an error the loaded keys and certificates stay in use.
func (p *PKI) Rotate() (renewed []string, err error) {
	p.rotate.Lock()
	defer p.rotate.Unlock()
	m, err := load(p.dir, p.opts)
	if err != nil {
		return nil, fmt.Errorf("pki: %w", err)
	}
	p.mu.Lock()
	p.now = m
	p.mu.Unlock()
	return m.renewed, nil
}

// Notices returns the messages of the last Ensure or Rotate about the authorities.
func (p *PKI) Notices() []Notice { return p.current().notices }

func (p *PKI) current() *material {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.now
}

// Dir returns the folder.
func (p *PKI) Dir() string { return p.dir }

// File returns the path of one of the folder's files, such as "ca.crt".
func (p *PKI) File(name string) string { return filepath.Join(p.dir, name) }

// CA returns the authority of the cluster, which signs the certificates of the API server and of all clients.
func (p *PKI) CA() *Authority { return p.current().ca }

// FrontProxyCA returns the authority of front proxies, which may name the user of a request by header.
func (p *PKI) FrontProxyCA() *Authority { return p.current().frontProxyCA }

// KubeletCA returns the authority that signs the serving certificates of node agents, and nothing else. The API server
// trusts it when it connects to agents; clients of the API do not, so that no agent can pose as the API server.
func (p *PKI) KubeletCA() *Authority { return p.current().kubeletCA }

// Admin returns the client certificate of the cluster's administrator.
func (p *PKI) Admin() *Pair { return p.current().leaves[leafAdmin] }

// FrontProxyClient returns the certificate that the API server shows to aggregated API servers.
func (p *PKI) FrontProxyClient() *Pair { return p.current().leaves[leafFrontProxyClient] }

// KubeletClient returns the certificate that the API server shows to node agents.
func (p *PKI) KubeletClient() *Pair { return p.current().leaves[leafKubeletClient] }

// Serving returns the API server's own certificate.
func (p *PKI) Serving() *Pair { return p.current().leaves[leafServing] }

// ServingCert has the signature of tls.Config.GetCertificate and returns the newest serving certificate, so that a
// renewal needs no restart.
func (p *PKI) ServingCert(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return p.current().serving, nil
}

// ServiceAccountKey returns the key that signs service-account tokens.
func (p *PKI) ServiceAccountKey() crypto.Signer { return p.current().saKey }

// ServiceAccountPublicKeys returns the keys that verify service-account tokens: the one in use first, then the others
// in sa.pub, where an operator leaves the old ones during a change of the key.
func (p *PKI) ServiceAccountPublicKeys() []crypto.PublicKey { return p.current().saPublic }

// Client makes a client certificate for a user in some groups. It is not stored.
func (p *PKI) Client(name string, groups ...string) (*Pair, error) {
	return p.CA().client(name, groups, p.opts.Now())
}

// Server makes a serving certificate for a node agent. Hosts are DNS names and addresses. It is not stored.
func (p *PKI) Server(name string, groups, hosts []string) (*Pair, error) {
	return p.KubeletCA().server(name, groups, sortHosts(hosts), p.opts.Now())
}

// Status describes one certificate of the folder.
type Status struct {
	Name     string
	File     string
	Cert     *x509.Certificate
	IsCA     bool
	Renewing bool // it will be renewed by the next Rotate
}

// Status returns the certificates: authorities first, then the leaves in a fixed order.
func (p *PKI) Status() []Status {
	m, now := p.current(), p.opts.Now()
	out := []Status{
		{Name: fileCA, File: p.File(fileCA + ".crt"), Cert: m.ca.Cert, IsCA: true},
		{Name: fileFrontProxyCA, File: p.File(fileFrontProxyCA + ".crt"), Cert: m.frontProxyCA.Cert, IsCA: true},
		{Name: fileKubeletCA, File: p.File(fileKubeletCA + ".crt"), Cert: m.kubeletCA.Cert, IsCA: true},
	}
	for _, l := range leaves(p.opts, m) {
		pair := m.leaves[l.name]
		out = append(out, Status{Name: l.name, File: p.File(l.name + ".crt"), Cert: pair.Cert, Renewing: l.stale(pair.Cert, now) != ""})
	}
	return out
}
