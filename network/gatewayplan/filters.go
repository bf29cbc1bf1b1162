package gatewayplan

import (
	"cmp"
	"net/http"

	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/httpproxy"
)

// addFilters adds filters to those of a rule. It returns false if one is not supported: then requests must not pass.
func (t *translation) addFilters(to *httpproxy.Filters, list []gw.HTTPRouteFilter) bool {
	complete := true
	for i := range list {
		f := &list[i]
		switch {
		case f.Type == gw.HTTPRouteFilterRequestHeaderModifier && f.RequestHeaderModifier != nil:
			to.Request = headerChange(f.RequestHeaderModifier)
		case f.Type == gw.HTTPRouteFilterResponseHeaderModifier && f.ResponseHeaderModifier != nil:
			to.Response = headerChange(f.ResponseHeaderModifier)
		case f.Type == gw.HTTPRouteFilterRequestRedirect && f.RequestRedirect != nil:
			to.Redirect = redirect(f.RequestRedirect)
		case f.Type == gw.HTTPRouteFilterURLRewrite && f.URLRewrite != nil:
			to.Hostname = string(deref(f.URLRewrite.Hostname, ""))
			to.Rewrite, to.FullPath = pathReplacement(f.URLRewrite.Path)
		case f.Type == gw.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
			t.addMirror(to, f.RequestMirror)
		case f.Type == gw.HTTPRouteFilterCORS && f.CORS != nil:
			to.CORS = cors(f.CORS)
		case f.Type == gw.HTTPRouteFilterExtensionRef && f.ExtensionRef != nil:
			t.refuseReference(gw.RouteReasonInvalidKind, "there is no filter of the kind %s here", f.ExtensionRef.Kind)
			complete = false
		default:
			t.refuse("the filter %s is not supported", f.Type)
			complete = false
		}
	}
	return complete
}

func headerChange(f *gw.HTTPHeaderFilter) (out httpproxy.HeaderChange) {
	for _, h := range f.Set {
		out.Set = append(out.Set, httpproxy.Pair{Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Add {
		out.Add = append(out.Add, httpproxy.Pair{Name: string(h.Name), Value: h.Value})
	}
	out.Remove = f.Remove
	return out
}

func redirect(f *gw.HTTPRequestRedirectFilter) *httpproxy.Redirect {
	out := &httpproxy.Redirect{Scheme: deref(f.Scheme, ""), Hostname: string(deref(f.Hostname, "")), Port: int(deref(f.Port, 0)),
		Code: deref(f.StatusCode, http.StatusFound)}
	out.Prefix, out.FullPath = pathReplacement(f.Path)
	return out
}

// pathReplacement returns what replaces the matched prefix of a path, or the whole path.
func pathReplacement(m *gw.HTTPPathModifier) (prefix, full string) {
	switch {
	case m == nil:
	case m.Type == gw.FullPathHTTPPathModifier:
		full = cmp.Or(deref(m.ReplaceFullPath, ""), "/")
	case m.Type == gw.PrefixMatchHTTPPathModifier:
		prefix = cmp.Or(deref(m.ReplacePrefixMatch, ""), "/")
	}
	return prefix, full
}

// addMirror adds a backend that gets copies of requests. A backend that cannot be used gets none.
func (t *translation) addMirror(to *httpproxy.Filters, f *gw.HTTPRequestMirrorFilter) {
	ref, ok := t.backend(&f.BackendRef, t.route.Kind == kindGRPCRoute)
	if !ok {
		return
	}
	m := httpproxy.Mirror{Ref: ref, Numerator: 1, Denominator: 1}
	switch {
	case f.Percent != nil:
		m.Numerator, m.Denominator = int(*f.Percent), 100
	case f.Fraction != nil:
		m.Numerator, m.Denominator = int(f.Fraction.Numerator), int(deref(f.Fraction.Denominator, 100))
	}
	to.Mirrors = append(to.Mirrors, m)
}

func cors(f *gw.HTTPCORSFilter) *httpproxy.CORS {
	out := &httpproxy.CORS{AllowCredentials: deref(f.AllowCredentials, false), MaxAge: int(f.MaxAge)}
	for _, o := range f.AllowOrigins {
		out.Origins = append(out.Origins, string(o))
	}
	for _, m := range f.AllowMethods {
		out.Methods = append(out.Methods, string(m))
	}
	for _, h := range f.AllowHeaders {
		out.Headers = append(out.Headers, string(h))
	}
	for _, h := range f.ExposeHeaders {
		out.Exposed = append(out.Exposed, string(h))
	}
	return out
}
