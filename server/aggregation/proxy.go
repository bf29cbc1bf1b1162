package aggregation

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/streaming/pkg/httpstream"
)

// maxInFlight is the number of requests that may wait for the response of one server at the same time. Streams do not
// count.
const maxInFlight = 400

// Pass forwards a request to the server of its group version, in the name of a user, and returns its response. The
// request may become a stream.
func (a *Aggregator) Pass(w http.ResponseWriter, req *http.Request, gv schema.GroupVersion, as user.Info) {
	b := (*a.backends.Load())[gv]
	if b == nil || !b.available {
		unavailable(w)
		return
	}
	transport, at, err := a.Clients.Transport(&b.endpoint)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if isDiscovery(req.URL.Path) {
		ctx, cancel := context.WithTimeout(req.Context(), fetchTimeout)
		defer cancel()
		req = req.WithContext(ctx)
	}
	upgrade := httpstream.IsUpgradeRequest(req)
	if _, bounded := req.Context().Deadline(); bounded && !upgrade {
		defer b.inFlight.Add(-1)
		if b.inFlight.Add(1) > maxInFlight {
			unavailable(w)
			return
		}
	}
	to := &url.URL{Scheme: at.Scheme, Host: at.Host, Path: req.URL.Path, RawPath: req.URL.RawPath, RawQuery: req.URL.Query().Encode()}
	out := req.WithContext(req.Context())
	out.Header = utilnet.CloneHeader(req.Header)
	out.URL, out.Host = to, to.Host
	setUser(out.Header, as)
	if id := w.Header().Get(auditHeader); id != "" {
		out.Header.Set(auditHeader, id)
	}
	h := proxy.NewUpgradeAwareHandler(to, filteringTransport{transport, w.Header()}, true, upgrade, responder{})
	h.RejectForwardingRedirects = true
	if upgrade {
		h.Transport = transport // the connection is dialed with its settings
		h.WrapTransport = false
	}
	h.ServeHTTP(w, out)
}

const auditHeader = "Audit-Id"

// isDiscovery reports whether a path is that of a group version itself.
func isDiscovery(path string) bool { return strings.Count(strings.Trim(path, "/"), "/") == 2 }

func unavailable(w http.ResponseWriter) {
	http.Error(w, "service unavailable", http.StatusServiceUnavailable)
}

// responder writes the response when a server could not be reached.
type responder struct{}

// Error responds with the error, unless the client has disconnected.
func (responder) Error(w http.ResponseWriter, req *http.Request, err error) {
	if errors.Is(err, context.Canceled) && req.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	http.Error(w, err.Error(), http.StatusServiceUnavailable)
}

// The front-proxy headers, with which this server names the user. Those in control/extensiontrust's ConfigMap are the
// same.
const (
	headerUser        = "X-Remote-User"
	headerUID         = "X-Remote-Uid"
	headerGroup       = "X-Remote-Group"
	headerExtraPrefix = "X-Remote-Extra-"
)

// setUser sets the front-proxy headers of a request. Headers of the same names that the client has sent are removed,
// and so are its credentials.
func setUser(h http.Header, who user.Info) {
	for key := range h {
		if strings.HasPrefix(key, "X-Remote-") || strings.HasPrefix(key, "Impersonate-") {
			delete(h, key)
		}
	}
	delete(h, "Authorization")
	delete(h, authenticationv1.ImpersonateUserHeader)
	h.Set(headerUser, who.GetName())
	if uid := who.GetUID(); uid != "" {
		h.Set(headerUID, uid)
	}
	for _, g := range who.GetGroups() {
		h.Add(headerGroup, g)
	}
	for key, values := range who.GetExtra() {
		for _, v := range values {
			h.Add(headerExtraPrefix+escapeKey(key), v)
		}
	}
}

// escapeKey escapes a key so that it can be part of the name of a header.
func escapeKey(key string) string {
	const hex = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(key) {
		if c := key[i]; c != '%' && strings.IndexByte(tokenBytes, c) >= 0 {
			out.WriteByte(c)
		} else {
			out.WriteString(string([]byte{'%', hex[c>>4], hex[c&15]}))
		}
	}
	return out.String()
}

// tokenBytes are the characters that the name of a header may have.
const tokenBytes = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// filteringTransport removes headers from responses that only this server may set.
type filteringTransport struct {
	http.RoundTripper
	own http.Header // of this server's response
}

// RoundTrip sends a request.
func (c filteringTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := c.RoundTripper.RoundTrip(req.WithContext(untraced{req.Context()}))
	if err != nil {
		return nil, err
	}
	for _, key := range []string{
		auditHeader, "X-Kubernetes-Pf-Prioritylevel-Uid", "X-Kubernetes-Pf-Flowschema-Uid", // set by this server
		"Alt-Svc", "Strict-Transport-Security", "Clear-Site-Data", // about the whole host
	} {
		resp.Header.Del(key)
	}
	if resp.Header.Get("Cache-Control") != "" {
		c.own.Del("Cache-Control")
	}
	return resp, nil
}

// untraced is a context of a request without the hooks by which the proxy library forwards informational responses
// (status codes 100 to 199). These would carry headers of this server, without a limit on their number. Without hooks
// the transport limits and drops them.
type untraced struct{ context.Context }

// Value hides the hooks.
func (u untraced) Value(key any) any {
	v := u.Context.Value(key)
	if _, hooks := v.(*httptrace.ClientTrace); hooks {
		return nil
	}
	return v
}
