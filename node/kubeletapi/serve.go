// Package kubeletapi serves the kubelet API of a node to the API server and to authorized clients: logs, exec, attach,
// port-forward, the Pods of the node and statistics. Paths, rules and errors are those of kubelets.
//
// Clients are authenticated by a client certificate or a bearer token, and authorized by a SubjectAccessReview. An API
// server in the same process uses an in-memory connection, see Inside.
package kubeletapi

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"

	"proa.dev/client"
	"proa.dev/internal/connlimit"
	"proa.dev/node/agentmetrics"
	"proa.dev/node/cri"
	"proa.dev/node/logs"
	"proa.dev/node/pod"
)

// Pods returns the Pods of the node.
type Pods interface {
	Pods() []pod.Local
}

// Runtime is what streams need of the container runtime.
type Runtime interface {
	ExecURL(ctx context.Context, r *cri.ExecRequest) (string, error)
	AttachURL(ctx context.Context, r *cri.AttachRequest) (string, error)
	LogPath(ctx context.Context, id string) (string, error)
	NetworkNamespace(ctx context.Context, sandbox string) (string, error)
	Runner
}

// Config is what a Server needs.
type Config struct {
	// Node is the name of the node, for authorization.
	Node    string
	Pods    Pods
	Runtime Runtime
	Notify  *logs.Notify // nil to poll followed logs every second
	// Client creates TokenReviews and SubjectAccessReviews.
	Client client.Writer
	// ClientCAs returns the certificate authorities of client certificates.
	ClientCAs func() *x509.CertPool
	// Healthy returns what is wrong with the agent; it may be nil.
	Healthy func() error
	// Settings is served at /configz, under the name kubeletconfig.
	Settings func() any
	// HostLogs is the folder of the machine's logs, which is served at /logs/ to users who may read the node's logs;
	// empty to serve none.
	HostLogs string
	// Handlers serve further paths: statistics and metrics.
	Handlers map[string]http.Handler
	// Connections bounds the clients and their streams; nil for no bound.
	Connections *connlimit.Budget
	// Metrics counts requests; it may be nil.
	Metrics *agentmetrics.Metrics
	Log     *slog.Logger
}

// Server is the kubelet API server.
type Server struct {
	Config
	authn *authenticator
	authz *authorizer
	mux   *http.ServeMux
	logs  *logs.Reader
	whole http.Handler // counts a request, and serves it

	forwarded forwarded
}

// New makes a server.
func New(c Config) *Server {
	s := &Server{Config: c, mux: http.NewServeMux()}
	s.authn, s.authz = newAuthenticator(c.Client, c.ClientCAs), newAuthorizer(c.Client, c.Node)
	s.logs = &logs.Reader{Ends: containerEnds{c.Pods}, Notify: c.Notify}
	s.routes()
	s.whole = c.Metrics.Instrument(http.HandlerFunc(s.serve), countedPaths())
	return s
}

func (s *Server) routes() {
	handle := func(pattern string, h http.HandlerFunc) { s.mux.HandleFunc(pattern, h) }
	for _, sub := range []string{"/{ns}/{pod}/{container}", "/{ns}/{pod}/{uid}/{container}"} {
		handle("GET /exec"+sub, s.exec)
		handle("POST /exec"+sub, s.exec)
		handle("GET /attach"+sub, s.attach)
		handle("POST /attach"+sub, s.attach)
		handle("POST /run"+sub, s.run)
	}
	for _, sub := range []string{"/{ns}/{pod}", "/{ns}/{pod}/{uid}"} {
		handle("GET /portForward"+sub, s.portForward)
		handle("POST /portForward"+sub, s.portForward)
	}
	handle("GET /containerLogs/{ns}/{pod}/{container}", s.containerLogs)
	handle("GET /pods", s.pods)
	handle("GET /runningpods/{$}", s.running)
	handle("GET /configz", s.configz)
	for _, path := range []string{"/healthz", "/healthz/ping", "/healthz/log", "/healthz/syncloop"} {
		handle("GET "+path, s.healthz)
	}
	handle("POST /checkpoint/{ns}/{pod}/{container}", s.checkpoint)
	handle("GET /logs/", s.hostLogs)
	for path, text := range map[string]string{
		"/debug/pprof/": "profiling endpoint is disabled.", "/debug/flags/v": "flags endpoint is disabled.",
	} {
		handle(path, func(w http.ResponseWriter, _ *http.Request) { sendError(w, text, http.StatusMethodNotAllowed) })
	}
	for path, h := range s.Handlers {
		s.mux.Handle("GET "+path, h)
	}
}

// countedPaths returns the paths that requests are counted by.
func countedPaths() []string {
	return []string{
		"healthz", "pods", "stats", "metrics", "metrics/cadvisor", "metrics/probes", "metrics/resource", "run", "exec", "attach",
		"portForward", "containerLogs", "configz", "runningpods", "checkpoint", "logs", "debug",
	}
}

// ServeHTTP counts, authenticates and authorizes a request, and serves it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.whole.ServeHTTP(w, r) }

// serve authenticates and authorizes a request, and serves it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	who, err := s.authn.authenticate(r)
	if err != nil {
		s.Log.DebugContext(r.Context(), "not authenticated", "path", r.URL.Path, "err", err)
		sendError(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	connlimit.FromContext(r.Context()).Authenticate(who.Username, who.Groups)
	if !isClean(r.URL) { // before authorization: the router would normalize the path, or redirect the client
		sendError(w, "the path is not clean: write it without empty, \".\" and \"..\" segments, encoded slashes and backslashes", http.StatusBadRequest)
		return
	}
	if code, text := s.authz.authorize(r, who); code != 0 {
		sendError(w, text, code)
		return
	}
	if isStream(r.URL.Path) {
		end, ok := s.Connections.Stream(who.Username, who.Groups)
		if !ok {
			sendError(w, "too many streams are open on this node; end some, or try again later", http.StatusTooManyRequests)
			return
		}
		defer end()
	}
	s.mux.ServeHTTP(w, r)
}

// isStream reports whether requests for a path last, and have connections of their own to a container.
func isStream(path string) bool {
	root, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains([]string{"exec", "attach", "run", "portForward", "containerLogs"}, root)
}

// healthz reports whether the agent works.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	if s.Healthy != nil && (r.URL.Path == "/healthz" || r.URL.Path == "/healthz/syncloop") {
		if err := s.Healthy(); err != nil {
			sendError(w, "[-]syncloop failed: "+err.Error()+"\nhealthz check failed", http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok")) // an error means that the client has disconnected
}

func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	var settings any = struct{}{}
	if s.Settings != nil {
		settings = s.Settings()
	}
	sendJSON(w, map[string]any{"kubeletconfig": settings})
}

// checkpoint is refused: checkpointing of containers is not supported.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	sendError(w, "checkpointing of "+r.PathValue("ns")+"/"+r.PathValue("pod")+"/"+r.PathValue("container")+" failed (not supported)",
		http.StatusNotFound)
}

// sendError answers with an error as text, without a final newline: clients quote it in their own messages.
func sendError(w http.ResponseWriter, text string, code int) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) //nolint:gosec // G705: the response is plain text, not HTML
}

// sendJSON writes a value as JSON.
func sendJSON(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		sendError(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
