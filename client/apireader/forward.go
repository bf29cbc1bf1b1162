package apireader

import (
	"net/http"
	"net/url"
	"strings"
)

// Forwarder returns a transport for requests of another client: each goes to the server of the kubeconfig, with the credentials of
// the kubeconfig in place of those that the client has sent. Unlike Do it sets no time limit, because watches and logs last.
func (r *Reader) Forwarder() (http.RoundTripper, error) {
	server, err := url.Parse(r.server)
	if err != nil {
		return nil, err
	}
	return &forwarder{server: server, reader: r}, nil
}

// forwarder is the transport that Forwarder returns.
type forwarder struct {
	server *url.URL
	reader *Reader
}

// RoundTrip sends a copy of the request to the server of the kubeconfig.
func (f *forwarder) RoundTrip(req *http.Request) (*http.Response, error) {
	out := req.Clone(req.Context())
	out.URL.Scheme, out.URL.Host, out.URL.User, out.Host = f.server.Scheme, f.server.Host, nil, ""
	out.URL.Path = strings.TrimRight(f.server.Path, "/") + req.URL.Path
	out.URL.RawPath = ""
	for name := range out.Header {
		if isIdentityHeader(name) {
			delete(out.Header, name)
		}
	}
	for name, values := range f.reader.impersonation {
		out.Header[name] = values
	}
	if f.reader.authorization != "" {
		out.Header.Set("Authorization", f.reader.authorization)
	}
	return f.reader.http.Transport.RoundTrip(out)
}

// CloseIdleConnections closes the connections on which no request is under way.
func (f *forwarder) CloseIdleConnections() { f.reader.http.CloseIdleConnections() }

// isIdentityHeader says that a header tells the server who sends a request, or could do so.
func isIdentityHeader(name string) bool {
	name = http.CanonicalHeaderKey(name)
	return name == "Authorization" || name == "Cookie" || name == "Proxy-Authorization" || name == "Forwarded" ||
		strings.HasPrefix(name, "Impersonate-") || strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "X-Forwarded-")
}
