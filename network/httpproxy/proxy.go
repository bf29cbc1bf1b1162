package httpproxy

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"proa.dev/internal/connlimit"
)

// The limits on clients.
const (
	maxHeader     = 64 << 10
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	// byteTimeout is the timeout for the next bytes of a client.
	byteTimeout = time.Minute
	maxStreams  = 250
)

// clientGone is the status code in the metrics for requests whose client has disconnected.
const clientGone = 499

// The bodies of the proxy's own responses.
const (
	noRule     = "there is nothing here\n"
	noEndpoint = "the backend has no endpoint that is ready\n"
	tooLarge   = "the request is larger than it may be\n"
	noBackend  = "the rule has no backend that is valid\n"
	// misdirected answers requests for a host that another TLS server name is used for than that of the connection.
	misdirected = "this connection is not for that host\n"
)

// Config configures a proxy.
type Config struct {
	// HTTPPort and HTTPSPort are the ports that clients use; 0 for HTTPSPort means that there is no TLS.
	HTTPPort, HTTPSPort int
	Metrics             *Metrics // nil for none
	// Answered is called when a new endpoint has answered a request, with the time at which the request was sent: for the answers of the
	// endpoint's first half minute, or until it returns true. May be nil.
	Answered func(endpoint netip.AddrPort, sent time.Time) bool
	// Drain counts what is in flight; may be nil.
	Drain *Drain
	Log   *slog.Logger
}

// Proxy forwards requests by the rules of its table.
type Proxy struct {
	Config
	table    atomic.Pointer[Table]
	certs    atomic.Pointer[map[string]*Certificate]
	sections atomic.Pointer[[]Section] // nil while there is one table for all hosts
	copies   chan struct{}             // a semaphore for the copies that are in flight to mirrors
	fallback fallback
	buffers  buffers
	// forwarding is the configuration that all requests share.
	forwarding httputil.ReverseProxy
}

// NewProxy returns a proxy without rules.
func NewProxy(c Config) *Proxy {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{Config: c, copies: make(chan struct{}, maxMirrored)}
	p.forwarding = httputil.ReverseProxy{BufferPool: &p.buffers, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)}
	p.Swap(NewTable(nil, nil), nil)
	return p
}

// Swap replaces the table and the certificates, which are given by host name. Requests in flight keep their rule.
func (p *Proxy) Swap(t *Table, certs map[string]*Certificate) {
	p.certs.Store(&certs)
	if old := p.table.Swap(t); old != nil && p.Metrics != nil {
		p.Metrics.forget(old, t)
	}
}

// Server returns a server for clients; the caller listens.
func (p *Proxy) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: p, Protocols: protocols, TLSConfig: p.tls(), ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ConnState: connlimit.ConnState,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 256 << 10,
			SendPingTimeout: idleTimeout, PingTimeout: 15 * time.Second, WriteByteTimeout: byteTimeout,
		},
	}
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	defer p.Drain.begin(w.Header())()
	a := newResponseWriter(w, byteTimeout)
	var owner Owner
	defer func() {
		a.done()
		if p.Metrics != nil {
			p.Metrics.observe(owner, a.code, time.Since(start))
		}
	}()
	path, ok := pathOf(r.URL)
	switch {
	case r.Method == http.MethodConnect:
		respond(a, http.StatusMethodNotAllowed, "this is no forward proxy\n")
		return
	case !ok:
		respond(a, http.StatusBadRequest, "the path is not one that can be served\n")
		return
	}
	table, code := p.tableFor(r)
	if code != 0 {
		respond(a, code, misdirected)
		return
	}
	var route *route
	if table != nil {
		route = table.find(r, path)
	}
	if route == nil {
		respond(a, http.StatusNotFound, noRule)
		return
	}
	owner = route.Owner
	if route.CORS != nil && route.CORS.answerPreflight(a, r) {
		return
	}
	switch {
	case route.ToTLS && r.TLS == nil:
		p.toTLS(a, r)
	case route.Redirect != nil:
		p.redirect(a, r, route)
	default:
		p.forward(a, r, route)
	}
}

// addressOf returns the address of the client.
func addressOf(r *http.Request) string {
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return ip
}

// forward sends a request to a backend of its rule, and the response back.
func (p *Proxy) forward(a *responseWriter, r *http.Request, route *route) {
	to := route.choose(rand.Int()) //nolint:gosec // G404: it spreads load, and is no secret
	switch {
	case to == nil && route.Refusal != 0:
		respond(a, route.Refusal, noBackend)
		return
	case to != nil && to.backend.Broken:
		respond(a, http.StatusInternalServerError, noBackend)
		return
	case to == nil || to.pool == nil:
		respond(a, http.StatusServiceUnavailable, noEndpoint)
		return
	}
	x := &exchange{route: route, pool: to.pool, backend: &to.backend, out: a, port: strconv.Itoa(p.HTTPPort), client: addressOf(r),
		origin: r.Header.Get("Origin"), answered: p.Answered, log: p.Log}
	if r.TLS != nil {
		x.port = strconv.Itoa(p.HTTPSPort)
	}
	if route.MaxBody > 0 && r.ContentLength > route.MaxBody {
		a.Header().Set("Connection", "close") // the rest of the body is not read
		respond(a, http.StatusRequestEntityTooLarge, tooLarge)
		return
	}
	ctx := r.Context()
	if route.Timeout > 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		x.slow = time.AfterFunc(route.Timeout, func() { cancel(errSlow) })
		defer x.slow.Stop()
	}
	if !allowsUpgrade(r.Header) {
		r.Header.Del("Upgrade")
	}
	in := r.WithContext(ctx)
	if r.Body != http.NoBody {
		if route.MaxBody > 0 {
			in.Body = http.MaxBytesReader(a.ResponseWriter, in.Body, route.MaxBody)
		}
		if r.ProtoMajor == 1 {
			a.upload = &upload{ReadCloser: in.Body, watchdog: &a.reading}
			in.Body = a.upload
			// An endpoint may respond before it has read the whole body.
			_ = a.control.EnableFullDuplex()
		}
	}
	if len(route.mirrors) > 0 {
		defer p.mirror(x, in)()
	}
	proxy := p.forwarding
	proxy.Rewrite, proxy.Transport, proxy.ErrorHandler = x.rewrite, x, x.fail
	if x.changesAnswer() {
		proxy.ModifyResponse = x.changeAnswer
	}
	proxy.ServeHTTP(a, in)
}

// allowsUpgrade reports whether a client may upgrade to the protocol that it asks for. After an upgrade the proxy does not parse what the
// client sends, so an upgrade to another HTTP would bypass the rules.
func allowsUpgrade(h http.Header) bool {
	all := h["Upgrade"]
	return len(all) == 1 && (strings.EqualFold(all[0], "websocket") || strings.EqualFold(all[0], "SPDY/3.1"))
}

// toTLS redirects a client to HTTPS permanently.
func (p *Proxy) toTLS(a *responseWriter, r *http.Request) {
	name := r.Host
	if at := strings.LastIndexByte(name, ':'); at >= 0 && !strings.HasSuffix(name, "]") {
		name = name[:at]
	}
	if name == "" {
		respond(a, http.StatusBadRequest, "say which host you mean\n")
		return
	}
	if p.HTTPSPort != 443 {
		name += ":" + strconv.Itoa(p.HTTPSPort)
	}
	to := url.URL{Scheme: "https", Host: name, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	a.Header().Set("Location", to.String())
	respond(a, http.StatusPermanentRedirect, "use https\n")
}

// respond writes a response of the proxy itself.
func respond(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// buffers is the pool of buffers for copying bodies.
type buffers struct{ pool sync.Pool }

const bufferSize = 32 << 10

func (b *buffers) Get() []byte {
	if have, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return have[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) {
	if len(p) == bufferSize {
		b.pool.Put((*[bufferSize]byte)(p))
	}
}
