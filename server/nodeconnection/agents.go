// Package nodeconnection connects the API server to the agents of nodes, and to their Pods. An agent in the same
// process is reached over a socket pair; every other one over HTTPS, at the address in its Node. Where there is no
// route to a node, the connection goes through a tunnel that the agent has opened. Authentication is the same either
// way.
package nodeconnection

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

// defaultPort is the port of an agent whose Node names none.
const defaultPort = 10250

// Config holds the credentials and the trust anchors of connections to agents.
type Config struct {
	// Certificate is the server's client certificate; CAs are the certificate authorities of the agents' certificates.
	Certificate func() (*tls.Certificate, error)
	CAs         func() *x509.CertPool
	// Foreign are the exceptions for nodes whose kubelets have other certificates.
	Foreign []ForeignKubelet
	// Verify verifies the chain of a client certificate and returns the identity of its holder. Without it no tunnel
	// can be opened.
	Verify func(chain []*x509.Certificate) (user.Info, error)
	// Node returns the Node of a name; nil where none is known.
	Node func(ctx context.Context, name string) (*corev1.Node, error)
	// ServiceCIDRs are the networks of Services, whose addresses no node can have.
	ServiceCIDRs []netip.Prefix
	Log          *slog.Logger
}

// Agents connects to all nodes.
type Agents struct {
	Config
	direct *http.Transport
	// route connects to an address without a tunnel.
	route  func(ctx context.Context, network, addr string) (net.Conn, error)
	counts dialCounts
	// attempts counts connections that are being made.
	attempts sync.WaitGroup

	mu      sync.Mutex // guards what follows
	local   map[string]*local
	remote  map[string]remote
	tunnels map[string]*tunnel
	closed  bool // no more tunnels are accepted
}

// maxIdle is how many connections to Pods, and to what else listens on nodes, are kept for further requests.
const maxIdle = 256

// New returns the connections to agents. Nothing is connected before it is needed.
func New(c Config) *Agents {
	a := &Agents{Config: c, local: map[string]*local{}, remote: map[string]remote{}, tunnels: map[string]*tunnel{}}
	a.direct = transport()
	a.route = a.direct.DialContext
	// Users choose the addresses, each a host of its own, and whoever listens there keeps connections open.
	a.direct.MaxIdleConns = maxIdle
	// Pods may serve certificates of any authority, and clients name the address themselves.
	a.direct.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} //nolint:gosec // see above
	return a
}

// transport returns a transport that uses HTTP/1.1, which can be upgraded to a stream, and no proxy.
func transport() *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	d := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		DialContext: d.DialContext, Protocols: protocols, TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConnsPerHost: 4, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}
}

// Agent returns the URL of the agent of a node, and the transport to it.
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
	return &url.URL{Scheme: "https", Host: net.JoinHostPort(host, strconv.Itoa(port))}, a.remoteTransport(n.Name), nil
}

// maxRemote is the number of cached transports; a new one costs a TLS handshake.
const maxRemote = 10000

// remote is the transport to the agent of a node in another process, valid for one set of certificate authorities.
type remote struct {
	*http.Transport
	by *x509.CertPool
}

// remoteTransport returns a transport that connects to the agent of a node in another process, and to nothing else.
//
// The agent must present the certificate of exactly this node. A Node may claim the address of anything that has a
// certificate of the same authority, for example the API server, which would take the caller for an administrator.
func (a *Agents) remoteTransport(node string) *http.Transport {
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
	// Connections that become streams are dialed by the proxy library, which takes the TLS settings from here.
	t.TLSClientConfig = &tls.Config{
		MinVersion: tls.VersionTLS12, RootCAs: cas,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return a.Certificate() },
		VerifyConnection:     func(c tls.ConnectionState) error { return checkAgent(c.PeerCertificates[0], node) },
	}
	if f, is := a.foreign(node); is {
		t.TLSClientConfig.InsecureSkipVerify = true //nolint:gosec // an administrator has said so; check verifies what there is to verify
		t.TLSClientConfig.VerifyConnection = func(c tls.ConnectionState) error { return f.check(c, cas, node) }
	}
	a.remote[node] = remote{t, cas}
	return t
}

// Pods returns the transport to the Pods of a node, and to what else listens at its addresses.
func (a *Agents) Pods(node string) *http.Transport {
	if t := a.tunnel(node); t != nil {
		return t.pods
	}
	return a.direct
}

// address returns the address of a node, best first. Host names are ignored: they may resolve to something else later.
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

// checkAgent checks that a certificate is that of the agent of a node.
func checkAgent(c *x509.Certificate, node string) error {
	if c.Subject.CommonName != "system:node:"+node || !slices.Contains(c.Subject.Organization, "system:nodes") {
		return fmt.Errorf("at the address of node %s is %q, not its agent", node, c.Subject.CommonName)
	}
	return nil
}

// Join adds the agent of a node in this process. Its handler may assume that the caller is the API server. leave
// removes it again, and waits until its requests have ended.
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
