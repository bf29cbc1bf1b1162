package route

import (
	"cmp"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// apply changes headers. Host is not among them: a request has it elsewhere.
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

// changesAnswer says that the headers of an answer are not passed on as they are.
func (x *exchange) changesAnswer() bool {
	return x.way.CORS != nil || !x.way.Response.isEmpty() || !x.backend.Response.isEmpty()
}

// changeAnswer changes the headers of an endpoint's answer.
func (x *exchange) changeAnswer(answer *http.Response) error {
	if x.way.CORS != nil {
		x.way.CORS.mark(answer.Header, x.origin)
	}
	x.backend.Response.apply(answer.Header)
	x.way.Response.apply(answer.Header)
	return nil
}

// redirect answers a request with the address that its rule says.
func (p *Proxy) redirect(a *answer, r *http.Request, way *way) {
	to := way.Redirect
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
			say(a, http.StatusBadRequest, "say which host you mean\n")
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
		escaped = rewritten(escaped, way.depth, to.Prefix)
	}
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		plain = escaped
	}
	location := url.URL{Scheme: scheme, Host: host, Path: plain, RawPath: escaped, RawQuery: r.URL.RawQuery}
	way.Response.apply(a.Header())
	a.Header().Set("Location", location.String())
	say(a, cmp.Or(to.Code, http.StatusFound), "it is elsewhere\n")
}

func usualPort(scheme string) int {
	if scheme == "https" {
		return 443
	}
	return 80
}
