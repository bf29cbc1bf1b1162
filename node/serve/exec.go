package serve

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

	"proa.dev/kinds/stream"
	"proa.dev/node/cri"
	"proa.dev/node/pod"
)

// Runner runs a command and waits for it.
type Runner interface {
	ExecSync(ctx context.Context, id string, command []string, timeout time.Duration) (out []byte, code int, err error)
}

var errNoStream = errors.New("you must specify at least 1 of stdin, stdout, stderr")

// asked is what a client wants of the streams of a Pod, and that Pod. Without either the client has been told so.
func (s *Server) asked(w http.ResponseWriter, r *http.Request) (o stream.Command, l pod.Local, ok bool) {
	o = stream.OfNode(r.URL.Query())
	if !o.Stdin && !o.Stdout && !o.Stderr {
		refuse(w, errNoStream.Error(), http.StatusBadRequest)
		return o, l, false
	}
	if l, ok = s.find(r); !ok {
		refuse(w, "pod does not exist", http.StatusNotFound)
	}
	return o, l, ok
}

// exec runs a command in a container, with streams.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	o, l, ok := s.asked(w, r)
	if !ok {
		return
	}
	c, found := runningIn(l, r.PathValue("container"))
	if !found {
		refuse(w, fmt.Sprintf("container not found (%q)", r.PathValue("container")), http.StatusInternalServerError)
		return
	}
	at, err := s.Runtime.ExecURL(r.Context(), &cri.ExecRequest{ContainerId: c.ID, Cmd: o.Args, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	s.pass(w, r, at, err, o)
}

// attach connects to the process of a container. Whether it has a terminal was decided when it began.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	o, l, ok := s.asked(w, r)
	if !ok {
		return
	}
	name := r.PathValue("container")
	c, found := runningIn(l, name)
	spec := specOf(l.Pod, name)
	if !found || spec == nil {
		refuse(w, fmt.Sprintf("container %s not found in pod %s_%s", name, l.Pod.Name, l.Pod.Namespace), http.StatusInternalServerError)
		return
	}
	o.TTY = spec.TTY
	o.Stderr = o.Stderr && !o.TTY
	at, err := s.Runtime.AttachURL(r.Context(), &cri.AttachRequest{ContainerId: c.ID, Tty: o.TTY, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr})
	s.pass(w, r, at, err, o)
}

// pass leads the streams of a client to where the runtime serves them. Runtimes speak SPDY and the old WebSocket protocols
// themselves; the new one is translated.
func (s *Server) pass(w http.ResponseWriter, r *http.Request, at string, err error, o stream.Command) {
	if err != nil {
		code := http.StatusInternalServerError
		if cri.NotFound(err) {
			code = http.StatusNotFound
		}
		refuse(w, cri.Message(err), code)
		return
	}
	to, err := url.Parse(at)
	if err != nil {
		refuse(w, "the runtime serves streams at no valid address: "+err.Error(), http.StatusInternalServerError)
		return
	}
	if wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		translate(w, r, to, o)
		return
	}
	proxy.NewUpgradeAwareHandler(to, s.loopback(), false, true, plain{}).ServeHTTP(w, r)
}

// loopback is the way to the runtime, which serves streams to its own machine only. No proxy of the environment is between.
func (s *Server) loopback() *http.Transport { return &http.Transport{DisableCompression: true} }

// plain says what went wrong as text.
type plain struct{}

func (plain) Error(w http.ResponseWriter, _ *http.Request, err error) {
	refuse(w, err.Error(), http.StatusInternalServerError)
}

// run runs a command and answers with all it wrote.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	l, found := s.find(r)
	if !found {
		refuse(w, "pod does not exist", http.StatusNotFound)
		return
	}
	c, found := runningIn(l, r.PathValue("container"))
	if !found {
		refuse(w, fmt.Sprintf("container not found (%q)", r.PathValue("container")), http.StatusInternalServerError)
		return
	}
	out, code, err := s.Runtime.ExecSync(r.Context(), c.ID, strings.Split(r.URL.Query().Get("cmd"), " "), 0)
	if err == nil && code != 0 {
		err = fmt.Errorf("command '%s' exited with %d: %s", r.URL.Query().Get("cmd"), code, out)
	}
	if err != nil {
		refuse(w, cri.Message(err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json") // whatever it is; clients expect to be told so
	_, _ = w.Write(out)                                //nolint:gosec // G705: it is no page
}
