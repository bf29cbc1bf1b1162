package httpproxy

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// CORS configures which origins may use the responses of a rule, by the Fetch standard, with wildcards in hosts.
type CORS struct {
	// Origins are origins such as "https://*.example.com"; "*" alone stands for all.
	Origins          []string
	AllowCredentials bool
	// Methods and Headers are what requests of these origins may use, Exposed the response headers that they may read;
	// "*" stands for all.
	Methods, Headers, Exposed []string
	MaxAge                    int // in seconds; 0 for the default of the client
}

// allows reports whether an origin may use the responses.
func (c *CORS) allows(origin string) bool {
	return slices.ContainsFunc(c.Origins, func(pattern string) bool { return pattern == "*" || matchOrigin(pattern, origin) })
}

// matchOrigin compares an origin with a pattern whose host may start with a wildcard.
func matchOrigin(pattern, origin string) bool {
	if strings.EqualFold(pattern, origin) {
		return true
	}
	p, err := url.Parse(strings.Replace(pattern, "://*", "://wildcard", 1))
	o, bad := url.Parse(origin)
	if err != nil || bad != nil || !strings.EqualFold(p.Scheme, o.Scheme) || p.Port() != o.Port() {
		return false
	}
	suffix, wild := strings.CutPrefix(strings.ToLower(p.Hostname()), "wildcard")
	return wild && strings.Contains(pattern, "://*") && len(o.Hostname()) > len(suffix) &&
		strings.HasSuffix(strings.ToLower(o.Hostname()), suffix)
}

// answerPreflight answers a preflight request of a browser. It returns false if the request is not one.
func (c *CORS) answerPreflight(w http.ResponseWriter, r *http.Request) bool {
	method, origin := r.Header.Get("Access-Control-Request-Method"), r.Header.Get("Origin")
	if r.Method != http.MethodOptions || method == "" || origin == "" {
		return false
	}
	h := w.Header()
	if c.allows(origin) {
		c.allowOrigin(h, origin)
		if len(c.Methods) > 0 {
			h.Set("Access-Control-Allow-Methods", c.listed(c.Methods, method))
		}
		if wanted := r.Header.Get("Access-Control-Request-Headers"); len(c.Headers) > 0 {
			h.Set("Access-Control-Allow-Headers", c.listed(c.Headers, wanted))
		}
		if c.MaxAge > 0 {
			h.Set("Access-Control-Max-Age", strconv.Itoa(c.MaxAge))
		}
		c.expose(h)
	}
	w.WriteHeader(http.StatusNoContent)
	return true
}

// listed returns a list of allowed values as a header. Wildcards have no effect in requests with credentials, so there
// the requested values are returned instead.
func (c *CORS) listed(allowed []string, asked string) string {
	if slices.Contains(allowed, "*") {
		if c.AllowCredentials && asked != "" {
			return asked
		}
		return "*"
	}
	return strings.Join(allowed, ", ")
}

func (c *CORS) allowOrigin(h http.Header, origin string) {
	if slices.Contains(c.Origins, "*") && !c.AllowCredentials {
		origin = "*"
	} else {
		h.Add("Vary", "Origin")
	}
	h.Set("Access-Control-Allow-Origin", origin)
	if c.AllowCredentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
}

// mark replaces the CORS headers of a response from an endpoint.
func (c *CORS) mark(h http.Header, origin string) {
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			h.Del(name)
		}
	}
	if origin == "" || !c.allows(origin) {
		return
	}
	c.allowOrigin(h, origin)
	c.expose(h)
}

// expose sets the header that lists the readable response headers.
func (c *CORS) expose(h http.Header) {
	if len(c.Exposed) > 0 {
		h.Set("Access-Control-Expose-Headers", strings.Join(c.Exposed, ", "))
	}
}
