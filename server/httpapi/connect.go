package httpapi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"proa.dev/kinds/kind"
	"proa.dev/server"
	"proa.dev/server/apistatus"
	"proa.dev/server/responsewriter"
)

// Nodes connects to the agents of nodes and to their Pods.
type Nodes interface {
	// Agent returns the address of the agent of a node, and the transport to it.
	Agent(n *corev1.Node) (at *url.URL, by *http.Transport, err error)
	// Pods returns the transport to the Pods of a node, and to whatever else listens at its addresses.
	Pods(node string) *http.Transport
	// Open makes the connection of a request the tunnel by which the node that sent it is reached.
	Open(w http.ResponseWriter, req *http.Request, who user.Info) error
}

// serveStream connects a client with a node or a Pod: after hops 3, 4 and 6 the bytes are passed on.
func (s *Handler) serveStream(w *responsewriter.Writer, req *http.Request, r *server.Request, rest string) {
	ctx := req.Context()
	switch req.Method {
	case http.MethodHead:
		r.Verb = "get"
	case http.MethodOptions: // has no verb, and only the proxy subresources pass it on
	default:
		if r.Verb == "" {
			s.writeError(w, req, apistatus.MethodNotAllowed())
			return
		}
	}
	target, err := s.Server.Connect(ctx, r, rest, req.URL.Query())
	writeWarnings(w, r)
	if err != nil {
		s.writeError(w, req, err)
		return
	}
	if target == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	to, err := s.locateTarget(target)
	if err != nil {
		s.writeError(w, req, err)
		return
	}
	end, err := s.beginStream(r.User)
	if err != nil {
		s.writeError(w, req, err)
		return
	}
	defer end()
	responsewriter.MarkStreaming(w.ResponseWriter)
	responder := errorResponder{s}
	switch target.Shape {
	case kind.Text:
		s.copyText(w, req, r, to)
	case kind.Proxy:
		proxy.NewUpgradeAwareHandler(to.url, to.transport, true, false, responder).ServeHTTP(w, req)
	default:
		proxy.NewUpgradeAwareHandler(to.url, to.transport, false, true, responder).ServeHTTP(w, req)
	}
}

// beginStream counts a request that lasts and that has a connection of its own to where it leads.
func (s *Handler) beginStream(who user.Info) (end func(), err error) {
	end, ok := s.Connections.Stream(who.GetName(), who.GetGroups())
	if !ok {
		return nil, apierrors.NewTooManyRequests("too many streams to nodes, Pods and aggregated API servers are open; end some of yours, or try again later", 5)
	}
	return end, nil
}

// destination is where a stream is passed on to.
type destination struct {
	url       *url.URL
	transport *http.Transport
	flush     bool // what it sends is passed on at once
}

// locateTarget finds the destination of a stream.
func (s *Handler) locateTarget(t *kind.Target) (*destination, error) {
	if s.Nodes == nil {
		return nil, apierrors.NewServiceUnavailable("no node agent is connected")
	}
	to := &url.URL{Scheme: t.Scheme, Host: t.Host}
	by := s.Nodes.Pods(t.NodeName)
	if t.Node != nil {
		agent, how, err := s.Nodes.Agent(t.Node)
		if err != nil {
			return nil, err
		}
		if t.Shape == kind.Proxy {
			// A Node object may have any address, but the addresses of the server itself must not be reached through
			// it.
			if ip := net.ParseIP(agent.Hostname()); ip != nil && !ip.IsGlobalUnicast() {
				return nil, apistatus.BadRequest("address not allowed")
			}
		}
		if t.Port != "" && t.Port != agent.Port() && net.ParseIP(agent.Hostname()) == nil {
			return nil, apistatus.BadRequest("address not allowed") // a host name might resolve to something else when it is dialed
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
	return &destination{url: &loc, transport: by, flush: t.Flush}, nil
}

// copyText reads a text, such as a log, from a node and writes it to the client.
func (s *Handler) copyText(w *responsewriter.Writer, req *http.Request, r *server.Request, from *destination) {
	toNode, err := http.NewRequestWithContext(req.Context(), http.MethodGet, from.url.String(),
		http.NoBody) // only to the agent of a registered node, which locateTarget checks
	if err != nil {
		s.writeError(w, req, fmt.Errorf("failed to construct request for %s, got %w", from.url, err))
		return
	}
	client := &http.Client{Transport: from.transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirects forbidden") }}
	resp, err := client.Do(toNode) //nolint:gosec // as above
	if err != nil {
		s.writeError(w, req, err)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if err := nodeError(resp, schema.GroupResource{Resource: r.Def.Plural + "/" + r.Sub.Name}, r.Name); err != nil {
		s.writeError(w, req, err)
		return
	}
	if wsstream.IsWebSocketRequest(req) {
		// The library drops the last bytes of a body that returns them together with io.EOF. A bufio.Reader returns
		// them one after the other.
		if err := wsstream.NewReader(bufio.NewReader(resp.Body), true, wsstream.NewDefaultReaderProtocols()).Copy(w, req); err != nil {
			s.Server.Log.DebugContext(req.Context(), "sending a text over a WebSocket failed", "path", req.URL.Path, "err", err)
		}
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	w.WriteHeader(http.StatusOK)
	w.Flush()
	var out io.Writer = w
	if from.flush {
		out = flushingWriter{w}
	}
	_, _ = io.Copy(out, resp.Body) // either end may close the connection
}

// nodeError returns the error of the API for a response of a node that is no success; nil otherwise.
func nodeError(resp *http.Response, gr schema.GroupResource, name string) error {
	if resp.StatusCode >= http.StatusOK && resp.StatusCode <= http.StatusPartialContent {
		return nil
	}
	const maxErrorBody = 50000
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
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

// flushingWriter sends every write at once.
type flushingWriter struct{ *responsewriter.Writer }

// Write writes and flushes.
func (a flushingWriter) Write(b []byte) (int, error) {
	n, err := a.Writer.Write(b)
	a.Flush()
	return n, err
}

// errorResponder answers requests that could not be passed on.
type errorResponder struct{ *Handler }

// Error answers with the Status of an error.
func (r errorResponder) Error(w http.ResponseWriter, req *http.Request, err error) {
	r.writeError(w, req, err)
}
