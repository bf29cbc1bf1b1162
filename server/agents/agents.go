// Package agents is how the API server reaches the agents of nodes, and their Pods. An agent in the same process is reached
// over a pair of sockets that lead nowhere else; every other one over HTTPS, at the address its Node gives. Where no route leads
// there, the connection goes through a tunnel, which the agent has opened from its side; what it is and whom it believes is the
// same either way.
package agents

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
)

// defaultPort is where an agent listens whose Node does not say so.
const defaultPort = 10250

// Config is how the server shows itself to agents, and whom it believes.
type Config struct {
	// Certificate is the server's as a client of agents; CAs vouch for those of agents.
	Certificate func() (*tls.Certificate, error)
	CAs         func() *x509.CertPool
	// Verify identifies the holder of a client certificate, whose chain it verifies. Without it no tunnel opens.
	Verify func(chain []*x509.Certificate) (user.Info, error)
	// Node finds the Node of a name; nil where none is known.
	Node func(ctx context.Context, name string) (*corev1.Node, error)
	// ServiceCIDRs are the networks of Services, whose addresses no node has.
	ServiceCIDRs []netip.Prefix
	Log          *slog.Logger
}

// Agents are the ways to all nodes.
type Agents struct {
	Config
	direct *http.Transport
	// route connects to an address by itself.
	route   func(ctx context.Context, network, addr string) (net.Conn, error)
	numbers numbers
	// attempts are connections that are being made.
	attempts sync.WaitGroup

	mu      sync.Mutex // guards what follows
	local   map[string]*local
	remote  map[string]remote
	tunnels map[string]*tunnel
	closed  bool // no more tunnels
}

// New makes the ways. Nothing is connected before it is needed.
func New(c Config) *Agents {
	a := &Agents{Config: c, local: map[string]*local{}, remote: map[string]remote{}, tunnels: map[string]*tunnel{}}
	a.direct = transport()
	a.route = a.direct.DialContext
	// What Pods serve is signed by whomever they like; clients asked for this very address.
	a.direct.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
	return a
}

// transport speaks HTTP/1.1, which can be turned into a stream, and uses no proxy.
func transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	d := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: d.DialContext, Protocols: protocols, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}
}

// Agent is the way to the agent of a node.
func (a *Agents) Agent(n *corev1.Node) (*url.URL, *http.Transport, error) {
	port := int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)
	if port <= 0 {
		port = defaultPort
	}
	host := address(n)
	a.mu.Lock()
	l := a.local[n.Name]
	a.mu.Unlock()
	if l != nil {
		if host == "" {
			host = n.Name // it is not dialed
		}
		return &url.URL{Scheme: "http", Host: net.JoinHostPort(host, strconv.Itoa(port))}, l.transport, nil
	}
	if host == "" || n.Status.DaemonEndpoints.KubeletEndpoint.Port == 0 {
		return nil, nil, apierrors.NewServiceUnavailable(fmt.Sprintf("no node agent is connected for node %q", n.Name))
	}
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(port))}, a.elsewhere(n.Name), nil
}

// maxRemote bounds the transports that are kept; one that is made anew costs a handshake.
const maxRemote = 10000

// remote is how to talk to one agent elsewhere, for as long as those vouch for it who did when it was made.
type remote struct {
	*http.Transport
	by *x509.CertPool
}

// elsewhere is how to talk to the agent of a node in another process, and to nobody else.
//
// The agent must show the certificate of just this node. A Node may claim the address of anything that the same authority has
// signed for, the API server among them, which would take the caller for an administrator.
func (a *Agents) elsewhere(node string) *http.Transport {
	cas := a.CAs()
	a.mu.Lock()
	defer a.mu.Unlock()
	have, found := a.remote[node]
	if found && have.by == cas {
		return have.Transport
	}
	if found {
		have.CloseIdleConnections()
	}
	if len(a.remote) >= maxRemote {
		for name, t := range a.remote {
			t.CloseIdleConnections()
			delete(a.remote, name)
		}
	}
	t := transport()
	t.DialContext = func(ctx context.Context, _, addr string) (net.Conn, error) { return a.Dial(ctx, node, addr) }
	// Connections that become streams are dialed by others, who take the settings from here.
	t.TLSClientConfig = &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: cas,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.Certificate() },
		VerifyConnection:     func(c tls.ConnectionState) error { return isAgent(c.PeerCertificates[0], node) },
	}
	a.remote[node] = remote{t, cas}
	return t
}

// Pods is the way to the Pods of a node, and to what else listens at its addresses.
func (a *Agents) Pods(node string) *http.Transport {
	if t := a.tunnel(node); t != nil {
		return t.pods
	}
	return a.direct
}

// address is where a node is reached, best first. A name does not count: it may mean something else tomorrow.
func address(n *corev1.Node) string {
	for _, t := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			if a.Type == t && net.ParseIP(a.Address) != nil {
				return a.Address
			}
		}
	}
	return ""
}

// isAgent says that a certificate is that of the agent of a node.
func isAgent(c *x509.Certificate, node string) error {
	if c.Subject.CommonName != "system:node:"+node || !slices.Contains(c.Subject.Organization, "system:nodes") {
		return fmt.Errorf("at the address of node %s is %q, not its agent", node, c.Subject.CommonName)
	}
	return nil
}

// Join adds the agent of a node that is in this process. The handler must know that its caller is the API server. What is
// returned takes it away again, and waits until nothing of it is served any more.
func (a *Agents) Join(node string, h http.Handler) (leave func(), err error) {
	l := newLocal(h, a.Log)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.local[node] != nil {
		l.close()
		return nil, fmt.Errorf("the agent of node %s is here twice", node)
	}
	a.local[node] = l
	return func() {
		a.mu.Lock()
		if a.local[node] == l {
			delete(a.local, node)
		}
		a.mu.Unlock()
		l.close()
	}, nil
}

var errClosed = errors.New("the agent has ended")
