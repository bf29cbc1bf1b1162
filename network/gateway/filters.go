package gateway

import (
	"cmp"
	"net/http"

	gw "sigs.k8s.io/gateway-api/apis/v1"

	"proa.dev/network/route"
)

// addFilters adds filters to those of a rule. It returns false if one is missing without which requests must not pass.
func (t *translation) addFilters(to *route.Filters, list []gw.HTTPRouteFilter) bool {
	well := true
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
			to.Rewrite, to.FullPath = replaced(f.URLRewrite.Path)
		case f.Type == gw.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
			t.addMirror(to, f.RequestMirror)
		case f.Type == gw.HTTPRouteFilterCORS && f.CORS != nil:
			to.CORS = cors(f.CORS)
		case f.Type == gw.HTTPRouteFilterExtensionRef && f.ExtensionRef != nil:
			t.unresolved(gw.RouteReasonInvalidKind, "there is no filter of the kind %s here", f.ExtensionRef.Kind)
			well = false
		default:
			t.refuse("the filter %s is not supported", f.Type)
			well = false
		}
	}
	return well
}

func headerChange(f *gw.HTTPHeaderFilter) (out route.HeaderChange) {
	for _, h := range f.Set {
		out.Set = append(out.Set, route.Pair{Name: string(h.Name), Value: h.Value})
	}
	for _, h := range f.Add {
		out.Add = append(out.Add, route.Pair{Name: string(h.Name), Value: h.Value})
	}
	out.Remove = f.Remove
	return out
}

func redirect(f *gw.HTTPRequestRedirectFilter) *route.Redirect {
	out := &route.Redirect{Scheme: deref(f.Scheme, ""), Hostname: string(deref(f.Hostname, "")), Port: int(deref(f.Port, 0)), Code: deref(f.StatusCode, http.StatusFound)}
	out.Prefix, out.FullPath = replaced(f.Path)
	return out
}

// replaced is what takes the place of the part of a path that matched, or of all of it.
func replaced(m *gw.HTTPPathModifier) (prefix, full string) {
	switch {
	case m == nil:
	case m.Type == gw.FullPathHTTPPathModifier:
		full = cmp.Or(deref(m.ReplaceFullPath, ""), "/")
	case m.Type == gw.PrefixMatchHTTPPathModifier:
		prefix = cmp.Or(deref(m.ReplacePrefixMatch, ""), "/")
	}
	return prefix, full
}

// addMirror adds a backend that gets copies of requests. One that cannot be used gets none.
func (t *translation) addMirror(to *route.Filters, f *gw.HTTPRequestMirrorFilter) {
	ref, ok := t.backend(&f.BackendRef, t.route.kind == kindGRPCRoute)
	if !ok {
		return
	}
	m := route.Mirror{Ref: ref, Numerator: 1, Denominator: 1}
	switch {
	case f.Percent != nil:
		m.Numerator, m.Denominator = int(*f.Percent), 100
	case f.Fraction != nil:
		m.Numerator, m.Denominator = int(f.Fraction.Numerator), int(deref(f.Fraction.Denominator, 100))
	}
	to.Mirrors = append(to.Mirrors, m)
}

func cors(f *gw.HTTPCORSFilter) *route.CORS {
	out := &route.CORS{AllowCredentials: deref(f.AllowCredentials, false), MaxAge: int(f.MaxAge)}
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
