package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"proa.dev/hop"
	"proa.dev/kinds/kind"
	"proa.dev/server/authz"
)

// Nodes leads to nodes and their Pods.
type Nodes interface {
	// Agent is the way to the agent of a node: where it is, and how to talk to it. Port is the one it listens at.
	Agent(n *corev1.Node) (at *url.URL, by *http.Transport, err error)
	// Pods is the way to the Pods of a node, and to what else listens at its addresses.
	Pods(node string) *http.Transport
	// Open turns the connection of a request into the tunnel by which the node that asks is reached.
	Open(w http.ResponseWriter, req *http.Request, who user.Info) error
}

// errStream refuses streams to callers in this process, which have no connection to turn into one.
var errStream = badRequest("a stream needs a connection of its own")

// serveStream connects a client with a node or a Pod: hops 3, 4 and 6 as for any request, and then the bytes pass.
func (s *Server) serveStream(w *recorder, req *http.Request, r *Request, rest string) {
	ctx := req.Context()
	switch req.Method {
	case http.MethodHead:
		r.Verb = "get"
	case http.MethodOptions: // has no verb, and is passed on by proxies only
	default:
		if r.Verb == "" {
			s.fail(w, req, methodNotAllowed())
			return
		}
	}
	target, err := s.connect(ctx, r, rest, req.URL.Query())
	warnings(w, r)
	if err != nil {
		s.fail(w, req, err)
		return
	}
	if target == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	loc, by, err := s.way(target)
	if err != nil {
		s.fail(w, req, err)
		return
	}
	markLasting(w.ResponseWriter)
	says := responder{s}
	switch target.Shape {
	case kind.Text:
		s.passText(w, req, r, loc, by, target.Flush)
	case kind.Proxy:
		proxy.NewUpgradeAwareHandler(loc, by, true, false, says).ServeHTTP(w, req)
	default:
		proxy.NewUpgradeAwareHandler(loc, by, false, true, says).ServeHTTP(w, req)
	}
}

// connect says where a stream leads, if the client may have it.
func (s *Server) connect(ctx context.Context, r *Request, rest string, q url.Values) (*kind.Target, error) {
	if err := s.authorize(ctx, r); err != nil {
		return nil, err
	}
	if !r.Sub.Allows(r.Verb) && (r.Verb != "" || !r.Sub.Allows("delete")) {
		return nil, methodNotAllowed()
	}
	r.Clock.Done(hop.Authorize)
	asked := &kind.Connection{Namespace: r.Namespace, Name: r.Name, Path: rest, Query: q, Split: s.SplitLogs}
	if r.Verb != "get" || r.Sub.Name != "log" { // to read a log is to read
		if err := s.admitStream(ctx, r, asked); err != nil {
			return nil, err
		}
	}
	if n := r.Sub.Needs; n != "" && n != r.Verb {
		if err := s.also(ctx, r, n); err != nil {
			return nil, err
		}
	}
	target, err := r.Sub.Connect(ctx, s.door(r), asked)
	if err == nil && target != nil && target.Needs != "" && target.Needs != r.Verb {
		err = s.also(ctx, r, target.Needs)
	}
	return target, err
}

// admitStream is hops 4 and 6 of a stream. Those of hop 4 may change its options, and then it is for what they say.
func (s *Server) admitStream(ctx context.Context, r *Request, asked *kind.Connection) error {
	a := s.admission(r, nil, nil)
	a.Verb, a.Options = "connect", nil
	var options runtime.Object
	if r.Sub.Body != nil && r.Sub.Body.Options != nil {
		options = r.Sub.Body.Options(asked)
		a.Connect = options
	}
	if err := s.admitTwice(ctx, a); err != nil {
		return err
	}
	a.Reinvocation = nil
	if err := admit(ctx, s.Check, a); err != nil {
		return err
	}
	if a.Connect != options && r.Sub.Body.Choose != nil {
		r.Sub.Body.Choose(asked, a.Connect)
	}
	return nil
}

// also asks whether the client may use another verb than its own, too.
func (s *Server) also(ctx context.Context, r *Request, verb string) error {
	a := authz.Attributes{
		User: r.User, Verb: verb, Namespace: r.Namespace, IsResource: true,
		Group: r.Def.Group, Version: r.Def.Version, Resource: r.Def.Plural, Subresource: r.Sub.Name, Name: r.Name,
	}
	decision, reason, err := s.Authz.Authorize(ctx, a)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	if decision != authz.Allow {
		return authz.Forbidden(&a, reason)
	}
	return nil
}

// way is how to get to a target.
func (s *Server) way(t *kind.Target) (*url.URL, *http.Transport, error) {
	if s.Nodes == nil {
		return nil, nil, apierrors.NewServiceUnavailable("no node agent is connected")
	}
	to := &url.URL{Scheme: t.Scheme, Host: t.Host}
	by := s.Nodes.Pods(t.On)
	if t.Node != nil {
		agent, how, err := s.Nodes.Agent(t.Node)
		if err != nil {
			return nil, nil, err
		}
		if t.Shape == kind.Proxy {
			// A Node may claim any address; the server's own are not to be reached so.
			if ip := net.ParseIP(agent.Hostname()); ip != nil && !ip.IsGlobalUnicast() {
				return nil, nil, badRequest("address not allowed")
			}
		}
		if t.Port != "" && t.Port != agent.Port() && net.ParseIP(agent.Hostname()) == nil {
			return nil, nil, badRequest("address not allowed") // a name may mean something else when it is dialed
		}
		if t.Port == "" || t.Port == agent.Port() {
			to, by = agent, how
		} else {
			to.Host, by = net.JoinHostPort(agent.Hostname(), t.Port), s.Nodes.Pods(t.Node.Name)
		}
	}
	loc := *to
	loc.Path = utilnet.JoinPreservingTrailingSlash(loc.Path, t.Path)
	loc.RawQuery = t.Query.Encode()
	return &loc, by, nil
}

// passText reads a text from a node and writes it to the client.
func (s *Server) passText(w *recorder, req *http.Request, r *Request, loc *url.URL, by *http.Transport, flush bool) {
	ask, err := http.NewRequestWithContext(req.Context(), http.MethodGet, loc.String(), http.NoBody) //nolint:gosec // only to the agent of a node that is registered, which way checks
	if err != nil {
		s.fail(w, req, fmt.Errorf("failed to construct request for %s, got %w", loc, err))
		return
	}
	client := &http.Client{Transport: by, CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirects forbidden") }}
	resp, err := client.Do(ask) //nolint:gosec // as above
	if err != nil {
		s.fail(w, req, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if err := refusal(resp, schema.GroupResource{Resource: r.Def.Plural + "/" + r.Sub.Name}, r.Name); err != nil {
		s.fail(w, req, err)
		return
	}
	if wsstream.IsWebSocketRequest(req) {
		// A body may bring its last bytes together with its end, and the library would drop them; a buffer hands them out one after
		// the other.
		if err := wsstream.NewReader(bufio.NewReader(resp.Body), true, wsstream.NewDefaultReaderProtocols()).Copy(w, req); err != nil {
			s.Log.DebugContext(req.Context(), "a text over a WebSocket ended early", "path", req.URL.Path, "err", err)
		}
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	w.Flush()
	var out io.Writer = w
	if flush {
		out = atOnce{w}
	}
	_, _ = io.Copy(out, resp.Body) // either end may leave
}

// refusal is what a node says when it does not answer, as clients of the API know it.
func refusal(resp *http.Response, gr schema.GroupResource, name string) error {
	if resp.StatusCode >= http.StatusOK && resp.StatusCode <= http.StatusPartialContent {
		return nil
	}
	const most = 50000
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	text := strings.TrimSuffix(string(body), "\n")
	switch {
	case err != nil:
		return apierrors.NewInternalError(err)
	case resp.StatusCode == http.StatusInternalServerError:
		return apierrors.NewInternalError(errors.New(text))
	case resp.StatusCode == http.StatusBadRequest:
		return apierrors.NewBadRequest(text)
	}
	return apierrors.NewGenericServerResponse(resp.StatusCode, "", gr, name, text, 0, false)
}

// atOnce sends everything as soon as it is written.
type atOnce struct{ *recorder }

// Write writes and sends.
func (a atOnce) Write(b []byte) (int, error) {
	n, err := a.recorder.Write(b)
	a.Flush()
	return n, err
}

// responder says what went wrong on the way to a target.
type responder struct{ *Server }

// Error answers with the Status of an error.
func (r responder) Error(w http.ResponseWriter, req *http.Request, err error) {
	r.fail(w, req, err)
}
