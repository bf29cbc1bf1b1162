package route

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync/atomic"
	"time"
)

// maxTries is how many endpoints are tried for one request.
const maxTries = 5

var (
	errNoEndpoint = errors.New("no endpoint")
	errSlow       = errors.New("the endpoint did not begin to answer in time")
)

// exchange is one request on its way. It is the proxy's RoundTripper for that one.
type exchange struct {
	way     *way
	pool    *Pool
	backend *Backend
	out     *answer
	port    string // at which the request came in
	// client is its address.
	client string
	origin string // of the page that asks, as the client says
	log    *slog.Logger
	// slow ends the request if it is not stopped.
	slow *time.Timer
}

// rewrite makes the request as the endpoint gets it. What the client has said about who it is has been removed before.
func (x *exchange) rewrite(p *httputil.ProxyRequest) {
	in, out := p.In, p.Out
	out.URL.Scheme = "http"
	if x.pool.ref.Protocol == HTTPS {
		out.URL.Scheme = "https"
	}
	out.URL.RawQuery = in.URL.RawQuery // as it was, also where it is malformed
	out.Trailer = in.Trailer           // it is filled in when the body is over
	if x.way.Rewrite != "" || x.way.FullPath != "" {
		escaped := x.way.FullPath
		if escaped == "" {
			escaped = rewritten(in.URL.EscapedPath(), x.way.depth, x.way.Rewrite)
		}
		if plain, err := url.PathUnescape(escaped); err == nil {
			out.URL.Path, out.URL.RawPath = plain, escaped
		}
	}
	if x.way.Hostname != "" {
		out.Host = x.way.Hostname
	}
	h := out.Header
	x.introduce(h, in)
	x.way.Request.apply(h)
	x.backend.Request.apply(h)
}

// introduce says in the headers of a request to an endpoint who asks, in place of what the client has said about it.
func (x *exchange) introduce(h http.Header, in *http.Request) {
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
	delete(h, "Proxy") // programs take it for a setting of theirs
}

// RoundTrip sends the request to an endpoint, and again where the rule says that what comes back is worth another attempt.
func (x *exchange) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &unread{ReadCloser: r.Body}
	}
	for attempt := 1; ; attempt++ {
		answer, err := x.attempt(r)
		if !x.again(r, answer, err, attempt) {
			return answer, err
		}
		if answer != nil {
			_ = answer.Body.Close()
		}
		select {
		case <-r.Context().Done():
			return nil, context.Cause(r.Context())
		case <-time.After(x.way.Retry.Backoff):
		}
	}
}

// again says that the rule asks for another attempt. A request with a body is sent once: what has been read of it is gone.
func (x *exchange) again(r *http.Request, answer *http.Response, err error, attempt int) bool {
	retry := x.way.Retry
	switch {
	case retry == nil || attempt > retry.Attempts || r.Context().Err() != nil || errors.Is(err, errNoEndpoint):
		return false
	case r.Body != nil && r.Body != http.NoBody:
		return false
	}
	return err != nil || slices.Contains(retry.Codes, answer.StatusCode)
}

// attempt sends the request to an endpoint. Another one is tried if there was no connection, and otherwise only for requests
// that have no effect by definition, if the endpoint has gone in the meantime: what has been sent may have been heard.
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
		if r.Context().Err() != nil || sent && !(e.gone.Load() && harmless(r)) {
			break
		}
		e.rest()
	}
	return nil, last
}

// harmless says that a request may be sent twice.
func harmless(r *http.Request) bool {
	return (r.Body == nil || r.Body == http.NoBody) && (r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions)
}

// send asks one endpoint. sent is false if it surely has got nothing.
func (x *exchange) send(e *endpoint, r *http.Request) (answer *http.Response, sent bool, err error) {
	if x.pool.ref.Protocol == HTTPS {
		r = watchSent(r, &sent)
	}
	r, stop := x.limit(r)
	answer, err = e.transport.RoundTrip(r)
	stop()
	if err != nil {
		e.release()
		if errors.Is(context.Cause(r.Context()), errSlow) {
			return nil, true, errSlow
		}
		if x.pool.ref.Protocol != HTTPS {
			_, not := errors.AsType[*unreached](err)
			sent = !not
		}
		return nil, sent, err
	}
	if x.slow != nil {
		x.slow.Stop()
	}
	b := &busy{ReadCloser: answer.Body, endpoint: e}
	if w, ok := answer.Body.(io.Writer); ok {
		answer.Body = &upgraded{b, w} // the connection itself, after a change of protocols
	} else {
		answer.Body = b
	}
	return answer, true, nil
}

// limit gives an endpoint its time to begin to answer. stop must be called when it has.
func (x *exchange) limit(r *http.Request) (limited *http.Request, stop func()) {
	if x.way.BackendTimeout <= 0 {
		return r, func() {}
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	timer := time.AfterFunc(x.way.BackendTimeout, func() { cancel(errSlow) })
	return r.WithContext(ctx), func() { timer.Stop() }
}

// fail answers a request for which there is no other answer.
func (x *exchange) fail(w http.ResponseWriter, r *http.Request, err error) {
	code, text := http.StatusBadGateway, "the backend did not answer\n"
	_, large := errors.AsType[*http.MaxBytesError](err)
	x.log.DebugContext(r.Context(), "a request could not be served", "rule", x.way.Owner.String(), "backend", x.pool.ref.String(), "method", r.Method, "err", err)
	switch {
	case errors.Is(err, errNoEndpoint):
		code, text = http.StatusServiceUnavailable, noEndpoint
	case large:
		code, text = http.StatusRequestEntityTooLarge, tooLarge
	case errors.Is(err, errSlow), errors.Is(context.Cause(r.Context()), errSlow):
		code, text = http.StatusGatewayTimeout, "the backend did not answer in time\n"
	case r.Context().Err() != nil:
		x.out.code = clientGone
		panic(http.ErrAbortHandler) // nobody listens
	case x.out.upload != nil && x.out.upload.failed.Load():
		code, text = http.StatusBadRequest, "the body of the request is not complete\n"
	}
	say(w, code, text)
}

// unread is the body of a request. A connection that fails closes it, which must not count as long as nothing was read:
// the next one needs it. Who handles the request closes the body in the end.
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

// busy is the body of an answer; the endpoint is busy until it is closed.
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
