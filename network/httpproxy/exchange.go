package httpproxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"proa.dev/internal/wait"
)

// maxTries is how many endpoints are tried for one request.
const maxTries = 5

var (
	errNoEndpoint = errors.New("no endpoint")
	errSlow       = errors.New("the endpoint did not begin to answer in time")
)

// exchange is one request on its way through the proxy. It is the RoundTripper of the reverse proxy for that request.
type exchange struct {
	route   *route
	pool    *Pool
	backend *Backend
	out     *responseWriter
	port    string // the port of the proxy that the request came to
	// client is the address of the client.
	client string
	origin string // the Origin header of the client
	// answered is Config.Answered.
	answered func(netip.AddrPort, time.Time) bool
	log      *slog.Logger
	// slow cancels the request when it fires.
	slow *time.Timer
}

// rewrite builds the request for the endpoint. Forwarding headers of the client have been removed before.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	out.URL.Scheme = "http"
	if x.pool.ref.Protocol == HTTPS {
		out.URL.Scheme = "https"
	}
	out.URL.RawQuery = in.URL.RawQuery // unchanged, even if it is malformed
	out.Trailer = in.Trailer           // it is filled in after the body
	if x.route.Rewrite != "" || x.route.FullPath != "" {
		escaped := x.route.FullPath
		if escaped == "" {
			escaped = rewritten(in.URL.EscapedPath(), x.route.depth, x.route.Rewrite)
		}
		if plain, err := url.PathUnescape(escaped); err == nil {
			out.URL.Path, out.URL.RawPath = plain, escaped
		}
	}
	if x.route.Hostname != "" {
		out.Host = x.route.Hostname
	}
	h := out.Header
	x.setForwarded(h, in)
	x.route.Request.apply(h)
	x.backend.Request.apply(h)
}

// setForwarded sets the forwarding headers of a request to an endpoint, and replaces those of the client.
func (x *exchange) setForwarded(h http.Header, in *http.Request) {
	proto := "http"
	if in.TLS != nil {
		proto = "https"
	}
	h["X-Forwarded-For"] = []string{x.client}
	h["X-Real-Ip"] = []string{x.client}
	h["X-Forwarded-Proto"] = []string{proto}
	h["X-Forwarded-Host"] = []string{in.Host}
	h["X-Forwarded-Port"] = []string{x.port}
	delete(h, "Forwarded")
	delete(h, "Proxy") // CGI programs take it for the setting HTTP_PROXY
}

// RoundTrip sends the request to an endpoint, and retries it as the rule says.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &unread{ReadCloser: r.Body}
	}
	for attempt := 1; ; attempt++ {
		answer, err := x.attempt(r)
		if !x.shouldRetry(r, answer, err, attempt) {
			return answer, err
		}
		if answer != nil {
			_ = answer.Body.Close()
		}
		if wait.Sleep(r.Context(), x.route.Retry.Backoff) != nil {
			return nil, context.Cause(r.Context())
		}
	}
}

// shouldRetry reports whether the rule asks for another attempt. A request with a body is sent once, because its body
// cannot be read again.
func (x *exchange) shouldRetry(r *http.Request, answer *http.Response, err error, attempt int) bool {
	retry := x.route.Retry
	switch {
	case retry == nil || attempt > retry.Attempts || r.Context().Err() != nil || errors.Is(err, errNoEndpoint):
		return false
	case r.Body != nil && r.Body != http.NoBody:
		return false
	}
	return err != nil || slices.Contains(retry.Codes, answer.StatusCode)
}

// attempt sends the request to an endpoint. It tries another endpoint if no connection could be made, and for
// idempotent requests also if the endpoint was removed meanwhile.
func (x *exchange) attempt(r *http.Request) (*http.Response, error) {
	var tried [maxTries]*endpoint
	last := errNoEndpoint
	for n := range maxTries {
		e := x.pool.take(x.client, tried[:n])
		if e == nil {
			break
		}
		tried[n] = e
		r.URL.Host = e.addr
		answer, sent, err := x.send(e, r)
		if err == nil {
			return answer, nil
		}
		last = err
		if r.Context().Err() != nil || sent && !(e.removed.Load() && isIdempotent(r)) {
			break
		}
		e.avoid()
	}
	return nil, last
}

// isIdempotent reports whether a request may be sent twice.
func isIdempotent(r *http.Request) bool {
	return (r.Body == nil || r.Body == http.NoBody) &&
		(r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions)
}

// send sends the request to one endpoint. sent is false if the endpoint cannot have received anything.
func (x *exchange) send(e *endpoint, r *http.Request) (answer *http.Response, sent bool, err error) {
	if x.pool.ref.Protocol == HTTPS {
		r = watchSent(r, &sent)
	}
	r, stop := x.limit(r)
	answered := e.watchAnswer(x.answered)
	answer, err = e.transport.RoundTrip(r)
	stop()
	if err != nil {
		e.release()
		if errors.Is(context.Cause(r.Context()), errSlow) {
			return nil, true, errSlow
		}
		if x.pool.ref.Protocol != HTTPS {
			_, not := errors.AsType[*dialError](err)
			sent = !not
		}
		return nil, sent, err
	}
	answered()
	if x.slow != nil {
		x.slow.Stop()
	}
	b := &busy{ReadCloser: answer.Body, endpoint: e}
	if w, ok := answer.Body.(io.Writer); ok {
		answer.Body = &upgraded{b, w} // the connection itself, after an upgrade
	} else {
		answer.Body = b
	}
	return answer, true, nil
}

// limit sets the timeout for the response header of an endpoint. stop must be called when the header has arrived.
func (x *exchange) limit(r *http.Request) (limited *http.Request, stop func()) {
	if x.route.BackendTimeout <= 0 {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(x.route.BackendTimeout, func() { cancel(errSlow) })
	return r.WithContext(ctx), func() { timer.Stop() }
}

// fail answers a request that no endpoint has answered.
func (x *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, text := http.StatusBadGateway, "the backend did not answer\n"
	_, large := errors.AsType[*http.MaxBytesError](err)
	x.log.DebugContext(r.Context(), "a request could not be served", "rule", x.route.Owner.String(), "backend", x.pool.ref.String(),
		"method", r.Method, "err", err)
	switch {
	case errors.Is(err, errNoEndpoint):
		code, text = http.StatusServiceUnavailable, noEndpoint
	case large:
		code, text = http.StatusRequestEntityTooLarge, tooLarge
	case errors.Is(err, errSlow), errors.Is(context.Cause(r.Context()), errSlow):
		code, text = http.StatusGatewayTimeout, "the backend did not answer in time\n"
	case r.Context().Err() != nil:
		x.out.code = clientGone
		panic(http.ErrAbortHandler) // the client has disconnected
	case x.out.upload != nil && x.out.upload.failed.Load():
		code, text = http.StatusBadRequest, "the body of the request is not complete\n"
	}
	respond(w, code, text)
}

// unread is the body of a request. A failed connection closes the body, which is ignored as long as nothing was read,
// because the next connection needs it. The handler of the request closes the body in the end.
type unread struct {
	io.ReadCloser
	read atomic.Bool
}

func (u *unread) Read(p []byte) (int, error) {
	u.read.Store(true)
	return u.ReadCloser.Read(p)
}

func (u *unread) Close() error {
	if !u.read.Load() {
		return nil
	}
	return u.ReadCloser.Close()
}

// busy is the body of a response; the endpoint counts as busy until it is closed.
type busy struct {
	io.ReadCloser
	endpoint *endpoint
	closed   atomic.Bool
}

func (b *busy) Close() error {
	if b.closed.CompareAndSwap(false, true) {
		defer b.endpoint.release()
	}
	return b.ReadCloser.Close()
}

type upgraded struct {
	*busy
	io.Writer
}
