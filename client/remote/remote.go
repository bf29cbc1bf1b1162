// Package remote is hop 1 for a process that is not the server: what package client promises, over HTTPS. Views are kept up by
// watches, everything goes over one connection, in protobuf where a kind has it.
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

	"k8s.io/apimachinery/pkg/runtime/schema"

	"proa.dev/client"
	"proa.dev/kinds"
	"proa.dev/kinds/codec"
	"proa.dev/kinds/kind"
)

// Config is where the server is, and who asks.
type Config struct {
	// URL is that of the server: https://HOST:PORT.
	URL string
	// TLS says whom to believe and, with a certificate, who asks. It may find the certificate anew for each connection; see
	// Renew.
	TLS *tls.Config
	// Roots, if there, are the authorities to believe from each Renew on, in place of those that TLS has.
	Roots func() *x509.CertPool
	// Token is the token of who asks, if there is no certificate; nil for none. It is asked for with every request.
	Token func() (string, error)
	// Dial connects to the server; nil for any way there is.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Transport, if there, leads to the server in place of connections of the client's own.
	Transport http.RoundTripper
	// Resources are those of the server; nil for the built-in ones.
	Resources []*kind.Def
	// MaxList bounds a list of objects; 0 for what a server of ours may send.
	MaxList int64
	// Refused, if there, is told when the server forbids the watch that keeps the view of a whole resource up to date, and nil when it
	// allows it again.
	Refused func(on schema.GroupResource, err error)
	// Agent is the name of the program, for the server's records.
	Agent string
	Log   *slog.Logger
}

// The bounds of answers: one object, and a list of them.
const (
	maxObject = 16 << 20
	maxList   = 1 << 30
)

// self is the name under which this process owns fields, as the server's own loops do.
const self = "proa"

// Client is one identity's access to a server elsewhere.
type Client struct {
	Config
	base  *url.URL
	codec *codec.Codec
	defs  map[schema.GroupResource]*kind.Def
	http  atomic.Pointer[http.Client]

	life context.Context // of the views
	stop context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex // guards views and what is opened
	views map[schema.GroupResource]*opening
}

// opening is a view of a whole resource, which all share.
type opening struct {
	sync.Mutex
	view *view
}

// New makes a client. It connects when something is asked for; its views live until Close, or until ctx ends.
func New(ctx context.Context, c Config) (*Client, error) {
	base, err := url.Parse(c.URL)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("the address of the server, %q, must be like https://HOST:PORT", c.URL)
	}
	scheme, err := kinds.Scheme()
	if err != nil {
		return nil, err
	}
	c.Agent = cmp.Or(c.Agent, self)
	r := &Client{Config: c, base: base, codec: codec.New(scheme), defs: map[schema.GroupResource]*kind.Def{}, views: map[schema.GroupResource]*opening{}}
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

// Close ends the views and waits for that.
func (c *Client) Close() {
	c.stop()
	c.work.Wait()
	c.http.Load().CloseIdleConnections()
}

// Renew makes new requests use a new connection, with the certificate and the authorities of now. Watches that are open stay on
// the old one until the server ends them, which it does within the hour.
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
	believe := c.TLS.Clone()
	if c.Roots != nil {
		believe.RootCAs = c.Roots()
	}
	t := &http.Transport{
		DialContext: dial, TLSClientConfig: believe, TLSHandshakeTimeout: 10 * time.Second, Protocols: protocols,
		// A server that is gone without a word is noticed.
		HTTP2:           &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 10 * time.Second},
		IdleConnTimeout: 2 * time.Minute, DisableCompression: true,
	}
	if old := c.http.Swap(&http.Client{Transport: t, CheckRedirect: refuse}); old != nil {
		old.CloseIdleConnections()
	}
}

// def finds a resource.
func (c *Client) def(gr schema.GroupResource) (*kind.Def, error) {
	d := c.defs[gr]
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
	media           codec.Media // of the body, and of the answer that is wanted
	stream          bool        // the answer is a stream of events
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

// send makes a request. An answer that is no success is the error it tells.
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
	resp, err := c.http.Load().Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		defer func() { _ = resp.Body.Close() }()
		return nil, c.refusal(resp)
	}
	return resp, nil
}

// errLong says that an answer is longer than it may be.
var errLong = errors.New("the answer of the server is too long")

// read reads an answer to its end.
func read(resp *http.Response, most int64) ([]byte, error) {
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > most {
		return nil, errLong
	}
	return body, nil
}

// View opens the cache of a resource. All who do so share it.
func (c *Client) View(ctx context.Context, gr schema.GroupResource) (client.View, error) {
	def, err := c.def(gr)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	o := c.views[gr]
	if o == nil {
		o = &opening{}
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

// Part opens a view of some objects, which lives until ctx ends.
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

// open reads what there is, so that a refusal is told at once, and keeps it up to date for as long as life lasts.
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
		defer context.AfterFunc(c.life, stop)() //nolint:contextcheck // the view ends with its own life and with the client
		v.follow(life)
	})
	return v, nil
}
