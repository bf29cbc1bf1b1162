// Package remote implements client.Client over HTTPS, for processes other than the server's, such as agents on other
// machines. Views are kept up to date by watches. All requests share one HTTP/2 connection, and use protobuf for kinds
// that have it.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds"
	"proa.dev/kinds/kind"
	"proa.dev/kinds/lib/codec"
)

// Config has the address of the server and the credentials of the client.
type Config struct {
	// URL is the address of the server: https://HOST:PORT.
	URL string
	// Servers, if not nil, returns the known addresses of servers, at least one, and whether the cluster has several servers. The
	// client connects to the first that answers, whatever host URL has, and to another when that does not answer any more.
	Servers func() (all []Server, several bool)
	// TLS has the certificate authorities to trust and, if there is one, the client certificate. Its callbacks may
	// return another certificate for each connection; see Renew.
	TLS *tls.Config
	// Roots, if not nil, returns the certificate authorities to trust in place of those of TLS. It is called by each
	// Renew.
	Roots func() *x509.CertPool
	// Token returns the bearer token of a client without certificate; nil for none. It is called for every request.
	Token func() (string, error)
	// Dial connects to the server; nil for a net.Dialer.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Transport, if not nil, is used in place of connections of the client's own.
	Transport http.RoundTripper
	// Resources are the descriptors of the server's resources; nil for the built-in ones.
	Resources []*kind.Def
	// MaxList bounds the bytes of a list response; 0 for the default.
	MaxList int64
	// Refused, if not nil, is called when the server forbids the watch of a whole resource, and with a nil error when
	// it allows the watch again.
	Refused func(on schema.GroupResource, err error)
	// Agent is the User-Agent of the requests.
	Agent string
	// Metrics counts the requests; it may be nil.
	Metrics *Metrics
	Log     *slog.Logger
}

// maxObject and maxList bound the bytes of a response with one object, and with a list of objects.
const (
	maxObject = 16 << 20
	maxList   = 1 << 30
)

// fieldManager is the field manager of the writes, as for controllers in the server's process.
const fieldManager = "proa"

// Client is a client.Client of a server in another process.
type Client struct {
	Config
	base  *url.URL
	codec *codec.Codec
	http  atomic.Pointer[http.Client]

	life context.Context // ends the views
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex // guards what follows
	defs  map[schema.GroupResource]*kind.Def
	views map[schema.GroupResource]*sharedView
	// last is the server to which the client has connected last, and connections are the latest ones.
	last        Server
	connections []*tls.Conn
	// movedAt is when the client left a server that said it was not available.
	movedAt time.Time
}

// sharedView is the view of a whole resource, which all callers share. Its lock is held while the view is opened.
type sharedView struct {
	sync.Mutex
	view *view
}

// New returns a client. It connects with the first request; its views are kept up to date until Close, or until ctx
// ends.
func New(ctx context.Context, c Config) (*Client, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("the address of the server, %q, must be like https://HOST:PORT", c.URL)
	}
	scheme, err := kinds.Scheme()
	if err != nil {
		return nil, err
	}
	c.Agent = cmp.Or(c.Agent, fieldManager)
	r := &Client{Config: c, base: base, codec: codec.New(scheme), defs: map[schema.GroupResource]*kind.Def{},
		views: map[schema.GroupResource]*sharedView{}}
	if c.Resources == nil {
		r.Config.Resources = kinds.All()
	}
	r.Config.MaxList = cmp.Or(c.MaxList, maxList)
	for _, d := range r.Config.Resources {
		if d.Hub == nil {
			r.defs[d.Resource()] = d
		}
	}
	r.life, r.stop = context.WithCancel(ctx)
	r.Renew()
	return r, nil
}

// Close stops the views and waits for their goroutines.
func (c *Client) Close() {
	c.stop()
	c.work.Wait()
	c.http.Load().CloseIdleConnections()
}

// Renew makes new requests use a new connection, with the current certificate and certificate authorities. Open watches
// stay on the old connection until the server ends them, which it does within an hour.
func (c *Client) Renew() {
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if c.Transport != nil {
		c.http.Store(&http.Client{Transport: c.Transport, CheckRedirect: refuse})
		return
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	dial := c.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	}
	tlsConfig := c.TLS.Clone()
	if c.Roots != nil {
		tlsConfig.RootCAs = c.Roots()
	}
	after, limit := c.pings()
	t := &http.Transport{
		DialContext: dial, TLSClientConfig: tlsConfig, TLSHandshakeTimeout: 10 * time.Second, Protocols: protocols,
		// Pings detect a server that has disappeared without closing the connection.
		HTTP2:           &http.HTTP2Config{SendPingTimeout: after, PingTimeout: limit},
		IdleConnTimeout: 2 * time.Minute, DisableCompression: true,
	}
	if c.Servers != nil {
		t.DialTLSContext = c.dialAny(dial, tlsConfig)
	}
	if old := c.http.Swap(&http.Client{Transport: t, CheckRedirect: refuse}); old != nil {
		old.CloseIdleConnections()
	}
}

// Define makes a resource known that the client was not made with, such as a custom resource, or known in another version. Its objects
// are unstructured, and have a status. Views that are open stay as they are.
func (c *Client) Define(plural string, of schema.GroupVersionKind, scope kind.Scope) {
	d := &kind.Def{Traits: kind.Traits{GroupVersionKind: of, Plural: plural, Scope: scope}, Subs: []*kind.SubDef{{Name: "status"}},
		New: func() kind.Object { return &unstructured.Unstructured{} }}
	c.mu.Lock()
	defer c.mu.Unlock()
	if had := c.defs[d.Resource()]; had == nil || had.Version != of.Version {
		c.defs[d.Resource()] = d
		delete(c.views, d.Resource())
	}
}

// def returns the descriptor of a resource.
func (c *Client) def(gr schema.GroupResource) (*kind.Def, error) {
	c.mu.Lock()
	d := c.defs[gr]
	c.mu.Unlock()
	if d == nil {
		return nil, fmt.Errorf("no resource %s", gr)
	}
	return d, nil
}

// call is one request.
type call struct {
	method          string
	def             *kind.Def
	namespace, name string
	sub             string
	query           url.Values
	body            []byte
	media           codec.Media // of the request body and of the response
	stream          bool        // the response is a stream of watch events
}

func (c *Client) url(q *call) *url.URL {
	parts := []string{"apis", q.def.Group, q.def.Version}
	if q.def.Group == "" {
		parts = []string{"api", q.def.Version}
	}
	if q.namespace != "" && q.def.Scope == kind.Namespaced {
		parts = append(parts, "namespaces", q.namespace)
	}
	parts = append(parts, q.def.Plural)
	if q.name != "" {
		parts = append(parts, q.name)
	}
	if q.sub != "" {
		parts = append(parts, q.sub)
	}
	u := c.base.JoinPath(parts...)
	u.RawQuery = q.query.Encode()
	return u
}

// send makes a request. A response that is no success is returned as the error that its Status describes.
func (c *Client) send(ctx context.Context, q *call) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, c.url(q).String(), bytes.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	if q.body == nil {
		req.Body = http.NoBody
	}
	accept := q.media.ContentType()
	if q.stream && q.media == codec.Proto {
		accept += ";stream=watch"
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", c.Agent)
	if q.body != nil {
		req.Header.Set("Content-Type", q.media.ContentType())
	}
	if c.Token != nil {
		token, err := c.Token()
		if err != nil {
			return nil, fmt.Errorf("find the token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	began := time.Now()
	resp, err := c.http.Load().Do(req)
	c.Metrics.count(c.base.Host, q, resp, time.Since(began))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusServiceUnavailable {
		c.tryOtherServer()
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer func() { _ = resp.Body.Close() }()
		return nil, c.statusError(resp)
	}
	return resp, nil
}

var errTooLong = errors.New("the answer of the server is too long")

// exchangeBytes sends a request and returns the body of its response, of at most limit bytes.
func (c *Client) exchangeBytes(ctx context.Context, q *call, limit int64) ([]byte, error) {
	resp, err := c.send(ctx, q)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, errTooLong
	}
	return body, nil
}

// View opens the cache of a resource, which all callers share.
func (c *Client) View(ctx context.Context, gr schema.GroupResource) (client.View, error) {
	def, err := c.def(gr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	o := c.views[gr]
	if o == nil {
		o = &sharedView{}
		c.views[gr] = o
	}
	c.mu.Unlock()
	o.Lock()
	defer o.Unlock()
	if o.view == nil {
		v, err := c.open(ctx, c.life, def, client.Scope{})
		if err != nil {
			return nil, err
		}
		o.view = v
	}
	return o.view, nil
}

// Part opens a view of some objects of a resource, which is kept up to date until ctx ends.
func (c *Client) Part(ctx context.Context, gr schema.GroupResource, scope client.Scope) (client.View, error) {
	if scope == (client.Scope{}) {
		return c.View(ctx, gr)
	}
	def, err := c.def(gr)
	if err != nil {
		return nil, err
	}
	return c.open(ctx, ctx, def, scope)
}

// open lists the objects of a view, so that the caller gets an error if that is forbidden, and keeps the view up to
// date until life ends.
func (c *Client) open(ctx, life context.Context, def *kind.Def, scope client.Scope) (*view, error) {
	if err := c.life.Err(); err != nil {
		return nil, errors.New("the client is closed")
	}
	v := newView(c, def, scope)
	if err := v.load(ctx); err != nil {
		return nil, err
	}
	c.work.Go(func() {
		life, stop := context.WithCancel(life)
		defer stop()
		defer context.AfterFunc(c.life, stop)() //nolint:contextcheck // the view ends with its own context and with the client
		v.follow(life)
	})
	return v, nil
}
