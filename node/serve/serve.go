// Package serve is the door of a node: what the API server, and those who may, ask of its agent. Logs, commands, forwarded
// ports, the Pods it has, and what they use. The paths, their rules and their errors are those that clients of nodes know.
//
// Everybody is recognised, by a certificate or a token, and asked for by a review at the API server; the agent knows nobody
// itself. An API server in the same process speaks over a connection that never leaves it, see Inside.
package serve

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"log/slog"
	"net/http"

	"proa.dev/client"
	"proa.dev/node/cri"
	"proa.dev/node/logs"
	"proa.dev/node/pod"
)

// Pods is who has the Pods of the node.
type Pods interface {
	Pods() []pod.Local
}

// Runtime is what streams need of a container runtime.
type Runtime interface {
	ExecURL(ctx context.Context, r *cri.ExecRequest) (string, error)
	AttachURL(ctx context.Context, r *cri.AttachRequest) (string, error)
	LogPath(ctx context.Context, id string) (string, error)
	NetworkNamespace(ctx context.Context, sandbox string) (string, error)
	Runner
}

// Config is what the door of a node leads to.
type Config struct {
	// Node is the name under which access to this node is granted.
	Node    string
	Pods    Pods
	Runtime Runtime
	Notify  *logs.Notify // nil to look at followed logs every second
	// Client asks the API server who somebody is and what they may do.
	Client client.Writer
	// ClientCAs vouch for the certificates of clients.
	ClientCAs func() *x509.CertPool
	// Healthy says what is wrong with the agent; nil for nothing ever.
	Healthy func() error
	// Settings are shown at /configz, under the name kubeletconfig.
	Settings func() any
	// HostLogs is the folder of the machine's logs, which /logs/ shows to those who may read the node's logs; empty to show none.
	HostLogs string
	// Others serve further paths: statistics and metrics.
	Others map[string]http.Handler
	Log    *slog.Logger
}

// Server is the door.
type Server struct {
	Config
	who  *identities
	may  *permissions
	mux  *http.ServeMux
	logs *logs.Reader
}

// New makes the door of a node.
func New(c Config) *Server {
	s := &Server{Config: c, mux: http.NewServeMux()}
	s.who, s.may = newIdentities(c.Client, c.ClientCAs), newPermissions(c.Client, c.Node)
	s.logs = &logs.Reader{Life: life{c.Pods}, Notify: c.Notify}
	s.routes()
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
		handle("GET /portForward"+sub, s.forward)
		handle("POST /portForward"+sub, s.forward)
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
		handle(path, func(w http.ResponseWriter, _ *http.Request) { refuse(w, text, http.StatusMethodNotAllowed) })
	}
	for path, h := range s.Others {
		s.mux.Handle("GET "+path, h)
	}
}

// ServeHTTP recognises who asks, asks whether they may, and answers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, err := s.who.of(r)
	if err != nil {
		s.Log.DebugContext(r.Context(), "not authenticated", "path", r.URL.Path, "err", err)
		refuse(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	if !isClean(r.URL) { // before it is judged: the router would understand another path, or send the client to one
		refuse(w, "the path is not clean: write it without empty, \".\" and \"..\" segments, encoded slashes and backslashes", http.StatusBadRequest)
		return
	}
	if code, text := s.may.ask(r, who); code != 0 {
		refuse(w, text, code)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// healthz says whether the agent does its work.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	if s.Healthy != nil && (r.URL.Path == "/healthz" || r.URL.Path == "/healthz/syncloop") {
		if err := s.Healthy(); err != nil {
			refuse(w, "[-]syncloop failed: "+err.Error()+"\nhealthz check failed", http.StatusInternalServerError)
			return
		}
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte("ok")) // whoever left does not need to know
}

func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	var settings any = struct{}{}
	if s.Settings != nil {
		settings = s.Settings()
	}
	answer(w, map[string]any{"kubeletconfig": settings})
}

// checkpoint is refused: nothing here can write the memory of a container to a file.
func (s *Server) checkpoint(w http.ResponseWriter, r *http.Request) {
	refuse(w, "checkpointing of "+r.PathValue("ns")+"/"+r.PathValue("pod")+"/"+r.PathValue("container")+" failed (not supported)", http.StatusNotFound)
}

// refuse writes what is wrong, and nothing after it: others show it in the middle of their own sentences.
func refuse(w http.ResponseWriter, text string, code int) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text)) //nolint:gosec // G705: it is plain text; and whoever left does not need to know
}

// answer writes a value as JSON.
func answer(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		refuse(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(body)
}
