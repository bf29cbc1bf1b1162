package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"proa.dev/kinds/lib/streamoptions"
	"proa.dev/node/cri"
	"proa.dev/node/pod"
)

// Runner runs a command in a container and waits for it.
type Runner interface {
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (out []byte, code int, err error)
}

var errNoStream = errors.New("you must specify at least 1 of stdin, stdout, stderr")

// streamRequest returns the stream options of a request, and its Pod. If either is missing, it has answered the request and ok
// is false.
func (s *Server) streamRequest(w http.ResponseWriter, r *http.Request) (o streamoptions.Command, l pod.Local, ok bool) {
	o = streamoptions.OfNode(r.URL.Query())
	if !o.Stdin && !o.Stdout && !o.Stderr {
		sendError(w, errNoStream.Error(), http.StatusBadRequest)
		return o, l, false
	}
	if l, ok = s.find(r); !ok {
		sendError(w, "pod does not exist", http.StatusNotFound)
	}
	return o, l, ok
}

// exec runs a command in a container, with streams.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	o, l, ok := s.streamRequest(w, r)
	if !ok {
		return
	}
	c, found := runningIn(l, r.PathValue("container"))
	if !found {
		sendError(w, fmt.Sprintf("container not found (%q)", r.PathValue("container")), http.StatusInternalServerError)
		return
	}
	at, err := s.Runtime.ExecURL(r.Context(),
		&cri.ExecRequest{ContainerId: c.ID, Cmd: o.Args, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	s.proxyStreams(w, r, at, err, o)
}

// attach connects to the main process of a container. Whether it has a terminal was decided when it was created.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	o, l, ok := s.streamRequest(w, r)
	if !ok {
		return
	}
	name := r.PathValue("container")
	c, found := runningIn(l, name)
	spec := specOf(l.Pod, name)
	if !found || spec == nil {
		sendError(w, fmt.Sprintf("container %s not found in pod %s_%s", name, l.Pod.Name, l.Pod.Namespace), http.StatusInternalServerError)
		return
	}
	o.TTY = spec.TTY
	o.Stderr = o.Stderr && !o.TTY
	at, err := s.Runtime.AttachURL(r.Context(),
		&cri.AttachRequest{ContainerId: c.ID, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	s.proxyStreams(w, r, at, err, o)
}

// proxyStreams proxies the streams of a client to the runtime's streaming server. Runtimes speak SPDY and the old WebSocket
// protocols themselves; the protocol v5 is translated.
func (s *Server) proxyStreams(w http.ResponseWriter, r *http.Request, at string, err error, o streamoptions.Command) {
	if err != nil {
		code := http.StatusInternalServerError
		if cri.NotFound(err) {
			code = http.StatusNotFound
		}
		sendError(w, cri.Message(err), code)
		return
	}
	to, err := url.Parse(at)
	if err != nil {
		sendError(w, "the runtime serves streams at no valid address: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		translate(w, r, to, o)
		return
	}
	proxy.NewUpgradeAwareHandler(to, s.loopback(), false, true, textErrors{}).ServeHTTP(w, r)
}

// loopback returns the transport to the runtime, which serves streams to its own machine only. It uses no proxy of the
// environment.
func (s *Server) loopback() *http.Transport { return &http.Transport{DisableCompression: true} }

// textErrors answers errors of the reverse proxy as text.
type textErrors struct{}

func (textErrors) Error(w http.ResponseWriter, _ *http.Request, err error) {
	sendError(w, err.Error(), http.StatusInternalServerError)
}

// run runs a command and answers with all its output.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	l, found := s.find(r)
	if !found {
		sendError(w, "pod does not exist", http.StatusNotFound)
		return
	}
	c, found := runningIn(l, r.PathValue("container"))
	if !found {
		sendError(w, fmt.Sprintf("container not found (%q)", r.PathValue("container")), http.StatusInternalServerError)
		return
	}
	out, code, err := s.Runtime.ExecSync(r.Context(), c.ID, strings.Split(r.URL.Query().Get("cmd"), " "), 0)
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", r.URL.Query().Get("cmd"), code, out)
	}
	if err != nil {
		sendError(w, cri.Message(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json") // clients expect this type, whatever the output is
	_, _ = w.Write(out)                                //nolint:gosec // G705: the response is not HTML
}
