package httpproxy

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// apply changes headers. The Host header is not among them: net/http keeps it in a field of the request.
func (c *HeaderChange) apply(h http.Header) {
	for _, p := range c.Set {
		h.Set(p.Name, p.Value)
	}
	for _, p := range c.Add {
		h.Add(p.Name, p.Value)
	}
	for _, name := range c.Remove {
		h.Del(name)
	}
}

func (c *HeaderChange) isEmpty() bool { return len(c.Set)+len(c.Add)+len(c.Remove) == 0 }

// changesAnswer reports whether the headers of a response are changed.
func (x *exchange) changesAnswer() bool {
	return x.route.CORS != nil || !x.route.Response.isEmpty() || !x.backend.Response.isEmpty()
}

// changeAnswer changes the headers of a response from an endpoint.
func (x *exchange) changeAnswer(answer *http.Response) error {
	if x.route.CORS != nil {
		x.route.CORS.mark(answer.Header, x.origin)
	}
	x.backend.Response.apply(answer.Header)
	x.route.Response.apply(answer.Header)
	return nil
}

// redirect answers a request with the redirect of its rule.
func (p *Proxy) redirect(a *responseWriter, r *http.Request, route *route) {
	to := route.Redirect
	scheme, port := "http", p.HTTPPort
	if r.TLS != nil {
		scheme, port = "https", p.HTTPSPort
	}
	switch {
	case to.Port != 0:
		port = to.Port
	case to.Scheme != "":
		port = usualPort(to.Scheme)
	}
	scheme = cmp.Or(to.Scheme, scheme)
	host := to.Hostname
	if host == "" {
		if host = hostOf(r.Host); host == "" {
			respond(a, http.StatusBadRequest, "say which host you mean\n")
			return
		}
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != usualPort(scheme) {
		host = net.JoinHostPort(strings.Trim(host, "[]"), strconv.Itoa(port))
	}
	escaped := r.URL.EscapedPath()
	switch {
	case to.FullPath != "":
		escaped = to.FullPath
	case to.Prefix != "":
		escaped = rewritten(escaped, route.depth, to.Prefix)
	}
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		plain = escaped
	}
	location := url.URL{Scheme: scheme, Host: host, Path: plain, RawPath: escaped, RawQuery: r.URL.RawQuery}
	route.Response.apply(a.Header())
	a.Header().Set("Location", location.String())
	respond(a, cmp.Or(to.Code, http.StatusFound), "it is elsewhere\n")
}

func usualPort(scheme string) int {
	if scheme == "https" {
		return 443
	}
	return 80
}
