package gatewayplan

import (
	"net/http"
	"time"

	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/httpproxy"
)

// http adds the rules of an HTTPRoute.
func (t *translation) http(r *gw.HTTPRoute, host string) {
	for i := range r.Spec.Rules {
		spec := &r.Spec.Rules[i]
		rule := httpproxy.Rule{Owner: t.owner(), Refusal: http.StatusInternalServerError}
		for j := range spec.BackendRefs {
			b := &spec.BackendRefs[j]
			t.addBackend(&rule, &b.BackendRef, b.Filters, false)
		}
		broken := !t.addFilters(&rule.Filters, spec.Filters)
		if broken { // requests must not pass without a filter that the user wants
			rule.Backends, rule.Redirect = nil, nil
		}
		t.addTimes(&rule.Filters, spec)
		matches := spec.Matches
		if len(matches) == 0 {
			matches = []gw.HTTPRouteMatch{{}}
		}
		for _, m := range matches {
			if match, ok := t.httpMatch(host, &m); ok {
				rule.Match = match
				t.rules = append(t.rules, rule)
			}
		}
	}
}

// httpMatch translates which requests a rule is for. Regular expressions are not supported.
func (t *translation) httpMatch(host string, m *gw.HTTPRouteMatch) (httpproxy.Match, bool) {
	out := httpproxy.Match{Host: host, Path: "/", Kind: httpproxy.Prefix, Method: string(deref(m.Method, ""))}
	if p := m.Path; p != nil {
		if v := deref(p.Value, "/"); v != "" {
			out.Path = v
		}
		switch kind := deref(p.Type, gw.PathMatchPathPrefix); kind {
		case gw.PathMatchExact:
			out.Kind = httpproxy.Exact
		case gw.PathMatchPathPrefix:
		default:
			t.refuse("paths are matched as Exact or PathPrefix, and not as %s", kind)
			return out, false
		}
	}
	for _, h := range m.Headers {
		if kind := deref(h.Type, gw.HeaderMatchExact); kind != gw.HeaderMatchExact {
			t.refuse("headers are matched as Exact, and not as %s", kind)
			return out, false
		}
		out.Headers = append(out.Headers, httpproxy.Pair{Name: string(h.Name), Value: h.Value})
	}
	for _, q := range m.QueryParams {
		if kind := deref(q.Type, gw.QueryParamMatchExact); kind != gw.QueryParamMatchExact {
			t.refuse("query parameters are matched as Exact, and not as %s", kind)
			return out, false
		}
		out.Query = append(out.Query, httpproxy.Pair{Name: string(q.Name), Value: q.Value})
	}
	return out, true
}

// addTimes translates the timeouts and retries of a rule.
func (t *translation) addTimes(f *httpproxy.Filters, spec *gw.HTTPRouteRule) {
	if spec.SessionPersistence != nil {
		t.refuse("there is no session persistence by cookies or headers; sessionAffinity of the Service is looked at")
	}
	if times := spec.Timeouts; times != nil {
		f.Timeout, f.BackendTimeout = t.duration(times.Request), t.duration(times.BackendRequest)
	}
	if r := spec.Retry; r != nil {
		f.Retry = &httpproxy.Retry{Attempts: min(deref(r.Attempts, 1), maxAttempts), Backoff: min(t.duration(r.Backoff), maxBackoff)}
		for _, c := range r.Codes {
			f.Retry.Codes = append(f.Retry.Codes, int(c))
		}
	}
}

const (
	// maxAttempts and maxBackoff bound the retries of one request.
	maxAttempts = 10
	maxBackoff  = 30 * time.Second
)

// duration parses a duration of the Gateway API, whose format is a subset of that of Go.
func (t *translation) duration(d *gw.Duration) time.Duration {
	if d == nil {
		return 0
	}
	out, err := time.ParseDuration(string(*d))
	if err != nil || out < 0 {
		t.refuse("%q is not a duration", *d)
		return 0
	}
	return out
}

// grpc adds the rules of a GRPCRoute. A gRPC method is the path of an HTTP/2 request.
func (t *translation) grpc(r *gw.GRPCRoute, host string) {
	for i := range r.Spec.Rules {
		spec := &r.Spec.Rules[i]
		rule := httpproxy.Rule{Owner: t.owner(), Refusal: http.StatusInternalServerError}
		for j := range spec.BackendRefs {
			b := &spec.BackendRefs[j]
			t.addBackend(&rule, &b.BackendRef, grpcFilters(b.Filters), true)
		}
		if !t.addFilters(&rule.Filters, grpcFilters(spec.Filters)) {
			rule.Backends = nil
		}
		if spec.SessionPersistence != nil {
			t.refuse("there is no session persistence by cookies or headers; sessionAffinity of the Service is looked at")
		}
		matches := spec.Matches
		if len(matches) == 0 {
			matches = []gw.GRPCRouteMatch{{}}
		}
		for _, m := range matches {
			if match, ok := t.grpcMatch(host, &m); ok {
				rule.Match = match
				t.rules = append(t.rules, rule)
			}
		}
	}
}

// grpcFilters converts the filters of a GRPCRoute to those of an HTTPRoute.
func grpcFilters(list []gw.GRPCRouteFilter) (out []gw.HTTPRouteFilter) {
	for _, f := range list {
		out = append(out, gw.HTTPRouteFilter{
			Type: gw.HTTPRouteFilterType(f.Type), RequestHeaderModifier: f.RequestHeaderModifier,
			ResponseHeaderModifier: f.ResponseHeaderModifier,
			RequestMirror:          f.RequestMirror, ExtensionRef: f.ExtensionRef,
		})
	}
	return out
}

// grpcMatch translates which calls a rule is for.
func (t *translation) grpcMatch(host string, m *gw.GRPCRouteMatch) (httpproxy.Match, bool) {
	out := httpproxy.Match{Host: host, Path: "/", Kind: httpproxy.Prefix}
	if p := m.Method; p != nil {
		if kind := deref(p.Type, gw.GRPCMethodMatchExact); kind != gw.GRPCMethodMatchExact {
			t.refuse("methods are matched as Exact, and not as %s", kind)
			return out, false
		}
		service, method := deref(p.Service, ""), deref(p.Method, "")
		switch {
		case service != "" && method != "":
			out.Path, out.Kind = "/"+service+"/"+method, httpproxy.Exact
		case service != "":
			out.Path = "/" + service
		default:
			out.LastElement = method
		}
	}
	for _, h := range m.Headers {
		if kind := deref(h.Type, gw.GRPCHeaderMatchExact); kind != gw.GRPCHeaderMatchExact {
			t.refuse("headers are matched as Exact, and not as %s", kind)
			return out, false
		}
		out.Headers = append(out.Headers, httpproxy.Pair{Name: string(h.Name), Value: h.Value})
	}
	return out, true
}

// tls adds the rule of a TLSRoute, which routes streams by their host name alone.
func (t *translation) tls(r *gw.TLSRoute, host string) {
	rule := httpproxy.Rule{Match: httpproxy.Match{Host: host, Path: "/"}, Owner: t.owner()}
	for i := range r.Spec.Rules {
		for j := range r.Spec.Rules[i].BackendRefs {
			t.addBackend(&rule, &r.Spec.Rules[i].BackendRefs[j], nil, false)
		}
	}
	t.rules = append(t.rules, rule)
}
