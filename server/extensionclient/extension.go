// Package extensionclient connects the API server to servers that extend it: admission and conversion webhooks, and
// aggregated API servers. It turns a URL or a reference to a Service into a transport with the right trust anchors,
// which dials Pods in the same way as the proxy of Services does: by the route to their node, or its tunnel. It sends
// nothing itself, and knows neither reviews nor requests.
package extensionclient

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"sync"
	"time"
)

const (
	// dialTimeout limits how long it may take to make a connection. Callers may give up earlier.
	dialTimeout = 30 * time.Second
	// idleTimeout is how long an unused connection is kept.
	idleTimeout = 90 * time.Second
	// maxIdle is the number of unused connections to one server that are kept.
	maxIdle = 32
	// unusedFor is how long an unused transport is kept, and maxTransports the number of transports.
	unusedFor     = 10 * time.Minute
	maxTransports = 1000
	// maxHeader is the size of the largest header of a response.
	maxHeader = 256 << 10
	// maxDials is the number of endpoints of a Service that are tried for one connection.
	maxDials = 3
)

// Endpoint says where a server is, and how to verify its certificate. Either URL or Service is set.
type Endpoint struct {
	URL     string
	Service *Service
	// CABundle holds the certificate authorities of the server; empty for those of the system.
	CABundle []byte
	// Insecure accepts every certificate, as an APIService may ask for.
	Insecure bool
}

// Service refers to a port of a Service, and a path there.
type Service struct {
	Namespace, Name string
	Path            string
	// Port is 443 when it is zero.
	Port int32
}

// ServiceReference is a reference to a Service in webhook configurations and CustomResourceDefinitions. Their own types
// have the same fields.
type ServiceReference struct {
	Namespace, Name string
	Path            *string
	Port            *int32
}

// WebhookEndpoint returns the endpoint of a webhook client configuration, which has a URL or a Service.
func WebhookEndpoint(rawURL *string, service *ServiceReference, caBundle []byte) Endpoint {
	e := Endpoint{CABundle: caBundle}
	if rawURL != nil {
		e.URL = *rawURL
	}
	if service == nil {
		return e
	}
	e.Service = &Service{Namespace: service.Namespace, Name: service.Name}
	if service.Path != nil {
		e.Service.Path = *service.Path
	}
	if service.Port != nil {
		e.Service.Port = *service.Port
	}
	return e
}

// Config holds what transports need.
type Config struct {
	// Resolve returns the addresses behind a Service, in the order in which they are tried.
	Resolve func(ctx context.Context, s Service) ([]Address, error)
	// Dial connects to an address of a node, by a route or a tunnel.
	Dial func(ctx context.Context, node, addr string) (net.Conn, error)
	// Certificate is the client certificate for servers that ask for one; nil for none.
	Certificate func() (*tls.Certificate, error)
}

// Address is the destination of a connection.
type Address struct {
	Host string // with its port
	Node string // the node of the Pod that has the address Host; empty when it is not known
}

// Clients caches the transports to servers, so that connections are reused. It is safe for concurrent use.
type Clients struct {
	Config
	direct net.Dialer

	mu         sync.Mutex // guards what follows
	transports map[key]*entry
}

// key identifies a transport. The path is not part of it.
type key struct {
	host     string
	service  Service
	cas      [sha256.Size]byte
	insecure bool
}

type entry struct {
	*http.Transport
	used time.Time
}

// New returns an empty cache. Nothing is connected before it is needed.
func New(c Config) *Clients {
	return &Clients{Config: c, direct: net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}, transports: map[key]*entry{}}
}

// Client returns a client for a server, and the URL to send requests to. The client follows no redirect, but returns
// the response with the redirect.
func (c *Clients) Client(e *Endpoint) (*http.Client, *url.URL, error) {
	t, at, err := c.Transport(e)
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: t, CheckRedirect: refuseRedirect}, at, nil
}

func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Transport returns the transport to a server, and the URL to send requests to. It uses HTTP/1.1: a connection can
// become a stream, and requests spread over the endpoints of a Service.
func (c *Clients) Transport(e *Endpoint) (*http.Transport, *url.URL, error) {
	at, err := e.url()
	if err != nil {
		return nil, nil, err
	}
	k := key{host: at.Scheme + "://" + at.Host, cas: sha256.Sum256(e.CABundle), insecure: e.Insecure}
	if e.Service != nil {
		k.service = *e.Service
		k.service.Path = ""
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if have := c.transports[k]; have != nil {
		have.used = now
		return have.Transport, at, nil
	}
	t, err := c.transport(e, at)
	if err != nil {
		return nil, nil, err
	}
	c.drop(now)
	c.transports[k] = &entry{t, now}
	return t, at, nil
}

// drop removes the transports that were not used for a while, and the oldest one when there are too many. c.mu is held.
func (c *Clients) drop(now time.Time) {
	var oldest key
	var since time.Time
	for k, e := range c.transports {
		if now.Sub(e.used) > unusedFor {
			e.CloseIdleConnections()
			delete(c.transports, k)
		} else if since.IsZero() || e.used.Before(since) {
			oldest, since = k, e.used
		}
	}
	if len(c.transports) >= maxTransports {
		c.transports[oldest].CloseIdleConnections()
		delete(c.transports, oldest)
	}
}

// Close closes unused connections.
func (c *Clients) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.transports {
		e.CloseIdleConnections()
	}
	clear(c.transports)
}

// url returns the URL for requests to an endpoint. The host of a Service is its name, which is never resolved by DNS.
// The path is cleaned, as upstream does: without dots, doubled slashes and a slash at its end.
func (e *Endpoint) url() (*url.URL, error) {
	if s := e.Service; s != nil {
		return &url.URL{Scheme: "https", Host: net.JoinHostPort(s.host(), strconv.Itoa(s.port())), Path: path.Join("/", s.Path)}, nil
	}
	if e.URL == "" {
		return nil, errors.New("webhook configuration must have either service or URL")
	}
	u, err := url.Parse(e.URL)
	if err != nil {
		return nil, fmt.Errorf("Unparsable URL: %w", err)
	}
	if u.Scheme != "https" {
		return nil, fmt.Errorf("the URL of an extension begins with https, not with %q", u.Scheme)
	}
	return &url.URL{Scheme: u.Scheme, Host: u.Host, Path: path.Join("/", u.Path)}, nil
}

// host returns the name that the certificate of the servers behind a Service must have.
func (s *Service) host() string { return s.Name + "." + s.Namespace + ".svc" }

func (s *Service) port() int {
	if s.Port == 0 {
		return 443
	}
	return int(s.Port)
}

// transport returns a new transport to a server. It uses no proxy from the environment.
func (c *Clients) transport(e *Endpoint, at *url.URL) (*http.Transport, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: e.Insecure} //nolint:gosec // only where an APIService says so
	if len(e.CABundle) > 0 && !e.Insecure {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(e.CABundle) {
			return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	if get := c.Certificate; get != nil {
		secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return get() }
	}
	dial := c.direct.DialContext
	if e.Service != nil {
		secure.ServerName = e.Service.host()
		dial = c.dialService(*e.Service, at.Host)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Transport{
		DialContext: dial, TLSClientConfig: secure, Protocols: protocols, TLSHandshakeTimeout: 10 * time.Second, DisableCompression: true,
		MaxIdleConns: maxIdle, MaxIdleConnsPerHost: maxIdle, IdleConnTimeout: idleTimeout, MaxResponseHeaderBytes: maxHeader,
	}, nil
}

// dialService returns a function that connects to one of the current endpoints of a Service.
func (c *Clients) dialService(s Service, host string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	s.Port = int32(s.port())
	return func(ctx context.Context, _, addr string) (net.Conn, error) {
		if addr != host {
			return nil, fmt.Errorf("a transport to %s does not lead to %s", host, addr)
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		found, err := c.Resolve(ctx, s)
		if err != nil {
			return nil, err
		}
		var errs []error
		for _, a := range found[:min(len(found), maxDials)] {
			conn, err := c.dial(ctx, a)
			if err == nil {
				return conn, nil
			}
			if errs = append(errs, err); ctx.Err() != nil {
				break
			}
		}
		return nil, errors.Join(errs...)
	}
}

func (c *Clients) dial(ctx context.Context, a Address) (net.Conn, error) {
	if a.Node == "" || c.Dial == nil {
		return c.direct.DialContext(ctx, "tcp", a.Host)
	}
	return c.Dial(ctx, a.Node, a.Host)
}
