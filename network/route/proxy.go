package route

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The bounds on clients.
const (
	maxHeader     = 64 << 10
	headerTimeout = 10 * time.Second
	idleTimeout   = 90 * time.Second
	// patience is how long a client may take to send or to take the next bytes.
	patience   = time.Minute
	maxStreams = 250
)

// clientGone is the code under which requests are counted whose client did not wait.
const clientGone = 499

// What clients read where there is nothing else to read.
const (
	noRule     = "there is nothing here\n"
	noEndpoint = "the backend has no endpoint that is ready\n"
	tooLarge   = "the request is larger than it may be\n"
	noBackend  = "the rule has no backend that is valid\n"
	// misdirected answers requests for a host that is served under another TLS name than the connection was made for.
	misdirected = "this connection is not for that host\n"
)

// Config says what a proxy is told once.
type Config struct {
	// HTTPPort and HTTPSPort are the ports that clients use; HTTPSPort 0 says that there is none with TLS.
	HTTPPort, HTTPSPort int
	Metrics             *Metrics // nil counts nothing
	Log                 *slog.Logger
}

// Proxy forwards requests as its table says.
type Proxy struct {
	Config
	table    atomic.Pointer[Table]
	certs    atomic.Pointer[map[string]*Certificate]
	sections atomic.Pointer[[]Section] // nil while there is one table for all
	copies   chan struct{}             // a place for each copy of a request that is on its way to a mirror
	fallback fallback
	buffers  buffers
	// forwarding is what all requests have in common.
	forwarding httputil.ReverseProxy
}

// NewProxy makes a proxy that has no rules yet.
func NewProxy(c Config) *Proxy {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	p := &Proxy{Config: c, copies: make(chan struct{}, maxMirrored)}
	p.forwarding = httputil.ReverseProxy{BufferPool: &p.buffers, ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)}
	p.Swap(NewTable(nil, nil), nil)
	return p
}

// Swap puts another table in place, and the certificates by the names they are for. Requests that are on their way keep the
// rule they have.
func (p *Proxy) Swap(t *Table, certs map[string]*Certificate) {
	p.certs.Store(&certs)
	if old := p.table.Swap(t); old != nil && p.Metrics != nil {
		p.Metrics.forget(old, t)
	}
}

// Server makes a server for clients; the caller listens.
func (p *Proxy) Server() *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Handler: p, Protocols: protocols, TLSConfig: p.tls(), ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug),
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: maxStreams, MaxReadFrameSize: 256 << 10,
			SendPingTimeout: idleTimeout, PingTimeout: 15 * time.Second, WriteByteTimeout: patience,
		},
	}
}

func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	a := newAnswer(w, patience)
	var owner Owner
	defer func() {
		a.done()
		if p.Metrics != nil {
			p.Metrics.note(owner, a.code, time.Since(start))
		}
	}()
	path, ok := pathOf(r.URL)
	switch {
	case r.Method == http.MethodConnect:
		say(a, http.StatusMethodNotAllowed, "this is no forward proxy\n")
		return
	case !ok:
		say(a, http.StatusBadRequest, "the path is not one that can be served\n")
		return
	}
	table, code := p.tableFor(r)
	if code != 0 {
		say(a, code, misdirected)
		return
	}
	var way *way
	if table != nil {
		way = table.find(r, path)
	}
	if way == nil {
		say(a, http.StatusNotFound, noRule)
		return
	}
	owner = way.Owner
	if way.CORS != nil && way.CORS.answerPreflight(a, r) {
		return
	}
	switch {
	case way.ToTLS && r.TLS == nil:
		p.toTLS(a, r)
	case way.Redirect != nil:
		p.redirect(a, r, way)
	default:
		p.forward(a, r, way)
	}
}

// addressOf is the address of who asks.
func addressOf(r *http.Request) string {
	ip, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return ip
}

// forward sends a request to a backend of its rule, and the answer back.
func (p *Proxy) forward(a *answer, r *http.Request, way *way) {
	to := way.choose(rand.Int()) //nolint:gosec // G404: who can guess it gains nothing
	switch {
	case to == nil && way.Refusal != 0:
		say(a, way.Refusal, noBackend)
		return
	case to != nil && to.backend.Broken:
		say(a, http.StatusInternalServerError, noBackend)
		return
	case to == nil || to.pool == nil:
		say(a, http.StatusServiceUnavailable, noEndpoint)
		return
	}
	x := &exchange{way: way, pool: to.pool, backend: &to.backend, out: a, port: strconv.Itoa(p.HTTPPort), client: addressOf(r), origin: r.Header.Get("Origin"), log: p.Log}
	if r.TLS != nil {
		x.port = strconv.Itoa(p.HTTPSPort)
	}
	if way.MaxBody > 0 && r.ContentLength > way.MaxBody {
		a.Header().Set("Connection", "close") // what follows is not read
		say(a, http.StatusRequestEntityTooLarge, tooLarge)
		return
	}
	ctx := r.Context()
	if way.Timeout > 0 {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		defer cancel(nil)
		x.slow = time.AfterFunc(way.Timeout, func() { cancel(errSlow) })
		defer x.slow.Stop()
	}
	if !tunnels(r.Header) {
		r.Header.Del("Upgrade")
	}
	in := r.WithContext(ctx)
	if r.Body != http.NoBody {
		if way.MaxBody > 0 {
			in.Body = http.MaxBytesReader(a.ResponseWriter, in.Body, way.MaxBody)
		}
		if r.ProtoMajor == 1 {
			a.upload = &upload{ReadCloser: in.Body, stall: &a.reading}
			in.Body = a.upload
			// An endpoint may answer before it has read everything.
			_ = a.control.EnableFullDuplex()
		}
	}
	if len(way.mirrors) > 0 {
		defer p.mirror(x, in)()
	}
	proxy := p.forwarding
	proxy.Rewrite, proxy.Transport, proxy.ErrorHandler = x.rewrite, x, x.fail
	if x.changesAnswer() {
		proxy.ModifyResponse = x.changeAnswer
	}
	proxy.ServeHTTP(a, in)
}

// tunnels says that a client may change to the protocol that it asks for. After that nobody looks at what it sends, so another
// HTTP would be a way around the rules.
func tunnels(h http.Header) bool {
	all := h["Upgrade"]
	return len(all) == 1 && (strings.EqualFold(all[0], "websocket") || strings.EqualFold(all[0], "SPDY/3.1"))
}

// toTLS sends a client to the same address with TLS, for good.
func (p *Proxy) toTLS(a *answer, r *http.Request) {
	name := r.Host
	if at := strings.LastIndexByte(name, ':'); at >= 0 && !strings.HasSuffix(name, "]") {
		name = name[:at]
	}
	if name == "" {
		say(a, http.StatusBadRequest, "say which host you mean\n")
		return
	}
	if p.HTTPSPort != 443 {
		name += ":" + strconv.Itoa(p.HTTPSPort)
	}
	to := url.URL{Scheme: "https", Host: name, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}
	a.Header().Set("Location", to.String())
	say(a, http.StatusPermanentRedirect, "use https\n")
}

// say is an answer of the proxy's own.
func say(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// buffers are what bodies are copied through.
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
